package pyexec

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// unreachable returns the Error of a failed exchange: the server's URL, the reason, and what can be done. If ctx has ended, the Error
// wraps the error of ctx.
func (c *Client) unreachable(ctx context.Context, err error) *Error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	reason, remedy := c.reason(ctx, err)
	return &Error{Code: CodeUnavailable, Message: printed(c.base) + ": " + reason + remedy, Err: err}
}

// reason returns why an exchange failed, and what can be done about it: ": is …?", or nothing.
func (c *Client) reason(ctx context.Context, err error) (reason, remedy string) {
	var sent *url.Error
	timeout := errors.As(err, &sent) && sent.Timeout()
	if sent != nil {
		err = sent.Err // without the method and the path
	}
	dialed, _ := errors.AsType[*net.OpError](err)
	var noHost *net.DNSError
	var untrusted *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "the deadline of the call's context has passed", ": the server's own limit of a program is config.timeout_seconds"
	case ctx.Err() != nil:
		return "the call's context has ended: " + context.Cause(ctx).Error(), ""
	case timeout && c.http.Timeout > 0 && !isDial(dialed):
		return fmt.Sprintf("no whole answer within the Timeout of the http.Client, %s", c.http.Timeout), ": a context with a deadline bounds a call"
	case errors.As(err, &noHost):
		return fmt.Sprintf("the name %s is not known", noHost.Name), ": is it right?"
	case dialed != nil && dialed.Op == "proxyconnect":
		return "the proxy of the environment was not reached: " + dialed.Err.Error(), ": is HTTP_PROXY or HTTPS_PROXY right, and has NO_PROXY this host?"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused", notRunning
	case isDial(dialed):
		return dialed.Err.Error(), notRunning
	case errors.As(err, &untrusted):
		return "its certificate is not trusted: " + untrusted.Err.Error(), ": WithHTTPClient takes a client that trusts it"
	case errors.As(err, &noTLS), errors.Is(err, http.ErrSchemeMismatch):
		return "no TLS is spoken there", ": does its URL begin with http://?"
	}
	return err.Error(), ""
}

// notRunning is what can be done where nobody accepts a connection.
const notRunning = ": is the server running there? python-executor serve starts one"

func isDial(e *net.OpError) bool { return e != nil && e.Op == "dial" }

// foreign returns the Error of an answer that is not the server's: that of a proxy, or of another server.
func foreign(resp *http.Response, server *url.URL) *Error {
	e := &Error{Code: codeOfStatus(resp.StatusCode), Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	remedy := "is its URL right?"
	switch s := resp.StatusCode; {
	case s >= 300 && s <= 399:
		remedy = fmt.Sprintf("must the URL be %s?", cmp.Or(resp.Header.Get("Location"), "another"))
	case s == http.StatusBadRequest && server.Scheme == "http":
		remedy = "is its URL right, and must it begin with https://?"
	case s == http.StatusUnauthorized, s == http.StatusForbidden, s == http.StatusProxyAuthRequired:
		remedy = "a proxy or another server wants credentials of its own"
	case s == http.StatusRequestEntityTooLarge:
		remedy = "a proxy before it bounds the size of a request"
	case s == http.StatusTooManyRequests:
		remedy = "a proxy before it bounds the number of requests"
	case s == http.StatusBadGateway, s == http.StatusServiceUnavailable, s == http.StatusGatewayTimeout:
		remedy = "is the server behind the proxy running?"
	}
	e.Message = fmt.Sprintf("%s: the answer is %s (%s), which is not python-executor's: %s", printed(server), statusLine(resp), cmp.Or(mediaTypeOf(resp), "no type"), remedy)
	return e
}

// mediaTypeOf returns the type of an answer without its parameters; empty: it has none.
func mediaTypeOf(resp *http.Response) string {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // one that cannot be read counts as none
	return mediaType
}

// isJSON reports whether an answer is of a type that the server's JSON has.
func isJSON(resp *http.Response) bool {
	mediaType := mediaTypeOf(resp)
	return mediaType == "application/problem+json" || mediaType == "application/json"
}

func statusLine(resp *http.Response) string {
	if text := http.StatusText(resp.StatusCode); text != "" {
		return fmt.Sprintf("%d %s", resp.StatusCode, text)
	}
	return fmt.Sprint(resp.StatusCode)
}

// printed returns a URL without its user.
func printed(u *url.URL) string {
	shown := *u
	shown.User = nil
	return shown.String()
}
