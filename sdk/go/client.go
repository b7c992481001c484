package pyexec

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Version is this module's version, sent as part of the User-Agent.
const Version = "0.1.0"

// Defaults of a Client.
const (
	defaultIdleTimeout = 45 * time.Second // three heartbeats of the server
	// continueTimeout is how long an upload waits for the server's leave before it is sent without. A server that is
	// full or wants a token says so within it, and not one byte is sent.
	continueTimeout = 3 * time.Second
)

// Client talks to one server. It is safe for concurrent use and needs no closing. Printing one shows no token.
type Client struct {
	base      *url.URL
	http      *http.Client
	token     func() string
	userAgent string
	retry     RetryPolicy
	hook      func(Retry)
	idle      time.Duration
}

// RetryPolicy bounds the retries of what is idempotent.
type RetryPolicy struct {
	// Attempts in all, the first included. Default 4; 1 = no retry. Events counts only those in a row that bring nothing.
	Attempts int
	// MinDelay is the pause before the first retry; it doubles, jittered, up to MaxDelay. Defaults 200 ms and 5 s.
	MinDelay time.Duration
	// MaxDelay also bounds how much of a server's Retry-After is obeyed.
	MaxDelay time.Duration
}

// Retry is what the hook of WithRetryHook is told before each pause.
type Retry struct {
	// Operation is "get", "events", ….
	Operation string
	// Attempt is the number of the attempt that failed, from 1.
	Attempt int
	Delay   time.Duration
	Err     error
}

// Option changes a Client that NewClient makes.
type Option func(*Client)

// WithToken sends a bearer token. It is sent to the server of the base URL only.
func WithToken(token string) Option {
	return func(c *Client) {
		if token != "" {
			c.token = func() string { return token }
		}
	}
}

// WithHTTPClient uses h instead of a client of our own. A Timeout in it cuts long executions and streams; give contexts a
// deadline instead. Its Transport should set ExpectContinueTimeout.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		if h != nil {
			c.http = h
		}
	}
}

// WithRetry replaces the RetryPolicy; its zero fields mean their defaults.
func WithRetry(p RetryPolicy) Option { return func(c *Client) { c.retry = p.withDefaults() } }

// WithRetryHook calls hook before each pause between attempts; hook may be called by several goroutines at once.
func WithRetryHook(hook func(Retry)) Option { return func(c *Client) { c.hook = hook } }

// WithUserAgent puts text before our own name in the User-Agent.
func WithUserAgent(text string) Option {
	return func(c *Client) { c.userAgent = text + " " + ourAgent }
}

// WithIdleTimeout says after how long a silent event stream counts as broken. Default 45 s; the server sends a heartbeat
// at least every 15 s.
func WithIdleTimeout(d time.Duration) Option {
	return func(c *Client) {
		if d > 0 {
			c.idle = d
		}
	}
}

const ourAgent = "pyexec-go/" + Version

// NewClient returns a Client for the server at baseURL ("http://127.0.0.1:8080").
func NewClient(baseURL string, opts ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "the server's URL cannot be read", Err: err}
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("the server's URL must be http://… or https://…, not %q", base.Redacted())}
	}
	base.RawQuery, base.Fragment = "", ""
	base.RawPath = strings.TrimRight(base.EscapedPath(), "/")
	if base.Path, err = url.PathUnescape(base.RawPath); err != nil {
		return nil, &Error{Code: CodeInvalid, Message: "the server's URL cannot be read", Err: err}
	}
	c := &Client{base: base, userAgent: ourAgent, retry: RetryPolicy{}.withDefaults(), idle: defaultIdleTimeout}
	for _, opt := range opts {
		opt(c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: newTransport(), CheckRedirect: stayHere}
	}
	return c, nil
}

// stayHere follows a redirect on the same server only: the token and the program are for no other.
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
	if p.MinDelay <= 0 {
		p.MinDelay = 200 * time.Millisecond
	}
	if p.MaxDelay <= 0 {
		p.MaxDelay = 5 * time.Second
	}
	p.MaxDelay = max(p.MaxDelay, p.MinDelay)
	return p
}

// CloseIdleConnections closes connections that wait for another request.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// String names the server.
func (c *Client) String() string { return "pyexec.Client(" + c.base.Redacted() + ")" }

// Format implements fmt.Formatter so that no verb prints the token.
func (c Client) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }
