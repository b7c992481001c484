package pyexec

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// Version is this module's version, sent as part of the User-Agent.
const Version = "0.1.0"

// Defaults of a Client.
const (
	defaultIdleTimeout = 45 * time.Second // three heartbeats of the server
	// continueTimeout is how long an upload waits for "100 Continue" before its body is sent anyway. A server that refuses the
	// upload answers within this time, so no byte of the body is sent.
	continueTimeout = 3 * time.Second
)

// Client is a client of one server. It is safe for concurrent use and need not be closed. Its printed form has no token.
type Client struct {
	base      *url.URL
	http      *http.Client
	token     func() string
	userAgent string
	retry     RetryPolicy
	hook      func(Retry)
	idle      time.Duration
}

// RetryPolicy bounds the retries of idempotent calls.
type RetryPolicy struct {
	// Attempts is the maximum number of attempts, including the first. Default 4; 1 means no retry.
	Attempts int
	// FollowAttempts is the maximum number of consecutive attempts of Events without an Event, after it had one: the server may be
	// restarting, and its programs may go on. Default 12, which is 18 to 36 seconds with the default pauses, or 1 if Attempts is; it is at
	// least Attempts.
	FollowAttempts int
	// MinDelay is the pause before the first retry; it doubles, jittered, up to MaxDelay. Defaults 200 ms and 5 s.
	MinDelay time.Duration
	// MaxDelay also bounds the pause that a server asks for with Retry-After.
	MaxDelay time.Duration
}

// Retry describes a failed attempt to the hook of WithRetryHook.
type Retry struct {
	// Operation is "get", "run", …. It is "resume" for Events that had an Event before, and "events" otherwise.
	Operation string
	// Attempt is the number of the attempt that failed, from 1.
	Attempt int
	Delay   time.Duration
	Err     error
}

// Option changes a Client that NewClient makes.
type Option func(*Client)

// WithToken sends a bearer token, only to the server of the base URL.
func WithToken(token string) Option {
	return func(c *Client) {
		if token != "" {
			c.token = func() string { return token }
		}
	}
}

// WithHTTPClient uses h instead of the default client. A Timeout in h cuts long executions and streams; use contexts with a
// deadline instead. The Transport of h should set ExpectContinueTimeout.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		if h != nil {
			c.http = h
		}
	}
}

// WithRetry replaces the RetryPolicy. Zero fields mean the defaults.
func WithRetry(p RetryPolicy) Option { return func(c *Client) { c.retry = p.withDefaults() } }

// WithRetryHook calls hook before each pause between attempts. Several goroutines may call hook at once.
func WithRetryHook(hook func(Retry)) Option { return func(c *Client) { c.hook = hook } }

// WithUserAgent puts text before the name of this package in the User-Agent.
func WithUserAgent(text string) Option {
	return func(c *Client) { c.userAgent = text + " " + ourAgent }
}

// WithIdleTimeout sets the time after which a silent stream of events or of a batch is broken. Default 45 s; the server sends a sign of life at least
// every 15 s.
func WithIdleTimeout(d time.Duration) Option {
	return func(c *Client) {
		if d > 0 {
			c.idle = d
		}
	}
}

const ourAgent = "pyexec-go/" + Version

// NewClient returns a Client for the server at baseURL ("http://127.0.0.1:8080"), which is without the path /api/v1. Codes: invalid.
func NewClient(baseURL string, opts ...Option) (*Client, error) {
	base, err := parseServer(baseURL)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, userAgent: ourAgent, retry: RetryPolicy{}.withDefaults(), idle: defaultIdleTimeout}
	for _, opt := range opts {
		opt(c)
	}
	if c.token != nil {
		if err := checkToken(c.token()); err != nil {
			return nil, err
		}
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport(), CheckRedirect: stayHere}
	}
	return c, nil
}

// The environment variables of NewClientFromEnv, which are also those of the CLI and of the Python SDK.
const (
	EnvServer = "PYEXEC_SERVER"
	EnvToken  = "PYEXEC_TOKEN" //nolint:gosec // a name
)

// NewClientFromEnv returns a Client for the server in PYEXEC_SERVER (default: http://127.0.0.1:8080), with the token in PYEXEC_TOKEN.
// WithToken overrides the token.
func NewClientFromEnv(opts ...Option) (*Client, error) {
	server, token := os.Getenv(EnvServer), os.Getenv(EnvToken)
	c, err := NewClient(cmp.Or(server, exampleServer), append([]Option{WithToken(token)}, opts...)...)
	if e, ok := errors.AsType[*Error](err); ok && len(e.Fields) == 1 { // the names under which they were given
		variable := EnvServer
		if e.Fields[0].Field == "token" {
			variable = EnvToken
		}
		if variable == EnvServer || checkToken(token) != nil {
			return nil, invalidField(variable, e.Fields[0].Message)
		}
	}
	return c, err
}

// stayHere follows redirects on the same server only, because no other server may get the token and the program.
func stayHere(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.URL.Host != first.Host || req.URL.Scheme != first.Scheme || len(via) > 4 {
		return http.ErrUseLastResponse
	}
	return nil
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: continueTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   16,
		IdleConnTimeout:       60 * time.Second,
	}
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Attempts <= 0 {
		p.Attempts = 4
	}
	if p.FollowAttempts <= 0 && p.Attempts > 1 {
		p.FollowAttempts = 12
	}
	p.FollowAttempts = max(p.FollowAttempts, p.Attempts)
	if p.MinDelay <= 0 {
		p.MinDelay = 200 * time.Millisecond
	}
	if p.MaxDelay <= 0 {
		p.MaxDelay = 5 * time.Second
	}
	p.MaxDelay = max(p.MaxDelay, p.MinDelay)
	return p
}

// CloseIdleConnections closes the connections without a request.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// String returns a text with the URL of the server.
func (c *Client) String() string { return "pyexec.Client(" + c.base.Redacted() + ")" }

// Format implements fmt.Formatter so that no verb prints the token.
func (c Client) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }
