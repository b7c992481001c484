package pyexec

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// exampleServer is the address of a server with the default configuration.
const exampleServer = "http://127.0.0.1:8080"

// apiRoot is the path of the API, which the client adds to the server's URL.
const apiRoot = "/api/v1"

// parseServer reads the URL of a server. An error names what would be right, and has no password.
func parseServer(text string) (*url.URL, error) {
	bad := func(what, meant string) error {
		if meant != "" {
			what += ": did you mean " + meant + "?"
		}
		if at := strings.LastIndex(text, "@"); at >= 0 {
			text = text[at+1:]
		}
		return invalidField("server", fmt.Sprintf("%s (got %q)", what, text))
	}
	trimmed := strings.TrimSpace(text)
	scheme, rest, absolute := strings.Cut(trimmed, "://")
	if scheme = strings.ToLower(scheme); !absolute || scheme != "http" && scheme != "https" {
		meant := ""
		bare := strings.TrimLeft(trimmed, "/")
		if strings.HasPrefix(bare, ":") {
			bare = "127.0.0.1" + bare
		}
		if guess := "http://" + bare; !absolute && !strings.Contains(guess, "@") {
			if u, err := url.Parse(guess); err == nil && u.Host != "" && (u.Hostname() == "localhost" || strings.ContainsAny(u.Host, ".:")) && !strings.HasSuffix(u.Host, ":") {
				meant = guess
			}
		}
		if meant == "" {
			return nil, bad("must begin with http:// or https://, as "+exampleServer+" does", "")
		}
		return nil, bad("must begin with http:// or https://", meant)
	}
	base, err := url.Parse(scheme + "://" + rest)
	if err != nil || base.Hostname() == "" {
		return nil, bad("must have a host, and a port that is a number, as "+exampleServer+" has", "")
	}
	if port, err := strconv.ParseUint(base.Port(), 10, 16); base.Port() != "" && (err != nil || port == 0) {
		return nil, bad("must have a port between 1 and 65535", "")
	}
	base.RawQuery, base.Fragment = "", ""
	base.RawPath = strings.TrimRight(base.EscapedPath(), "/")
	if base.Path, err = url.PathUnescape(base.RawPath); err != nil {
		return nil, bad("must have a path that can be read", "")
	}
	if before, after, found := strings.Cut(base.Path, apiRoot); found && (after == "" || after[0] == '/') {
		meant := *base
		meant.User, meant.Path, meant.RawPath = nil, before, ""
		return nil, bad("must not have the path "+apiRoot+", which the client adds", meant.String())
	}
	return base, nil
}

// checkToken returns an error if a token cannot be sent. The error has no part of the token.
func checkToken(token string) error {
	for i, c := range []byte(token) {
		if c > ' ' && c < 0x7f {
			continue
		}
		what := "a character that is not ASCII"
		if c <= ' ' || c == 0x7f {
			what = "white space or a control character"
		}
		return invalidField("token", fmt.Sprintf("must be visible ASCII characters (character %d is %s)", i+1, what))
	}
	return nil
}
