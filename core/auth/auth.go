package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// Token is one accepted bearer token.
type Token struct {
	// Owner owns the Executions and Sessions that are made with the token; not empty.
	Owner string
	// SHA256 is the hex SHA-256 of the token's bytes.
	SHA256 string
	// Scopes are those of the token. Empty means exec and read.
	Scopes []executor.Scope
}

// Authenticator knows the accepted tokens. It is safe for concurrent use after New and Allow. The nil Authenticator has no
// tokens.
type Authenticator struct {
	entries []entry
	local   []executor.Scope
	several bool
}

type entry struct {
	sum       [sha256.Size]byte
	principal executor.Principal
}

// MaxTokenBytes is the maximum length of a bearer token; a longer token is unknown without a comparison.
const MaxTokenBytes = 4096

// New returns an Authenticator of tokens. It reports every bad token, by its index, in one error. Codes: invalid.
func New(tokens []Token) (*Authenticator, error) {
	a := &Authenticator{entries: make([]entry, 0, len(tokens)), several: SeveralOwners(tokens)}
	var bad executor.Problems
	report := func(i int, key, format string, args ...any) {
		bad.Add(fmt.Sprintf("http.tokens[%d].%s", i, key), format, args...)
	}
	for i, t := range tokens {
		e := entry{principal: executor.Principal{Owner: t.Owner, Scopes: slices.Clone(t.Scopes)}}
		if t.Owner == "" {
			report(i, "owner", "must not be empty")
		}
		// The message does not repeat the value, which may be the token itself by mistake.
		if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != sha256.Size {
			report(i, "sha256", "must be the SHA-256 of the token, 64 hexadecimal digits")
		} else {
			copy(e.sum[:], sum)
		}
		for _, known := range a.entries {
			if known.sum == e.sum {
				report(i, "sha256", "duplicate of another token's")
			}
		}
		for _, s := range t.Scopes {
			if !slices.Contains(executor.Scopes(), s) {
				report(i, "scopes", "unknown scope %q", s)
			}
		}
		if len(t.Scopes) == 0 {
			e.principal.Scopes = []executor.Scope{executor.ScopeExec, executor.ScopeRead}
		}
		a.entries = append(a.entries, e)
	}
	if err := bad.Err(executor.Invalid, "", "; "); err != nil {
		return nil, err
	}
	return a, nil
}

// Allow gives the local owner more scopes, for use without tokens. It must be called before the first Authenticate.
func (a *Authenticator) Allow(scopes ...executor.Scope) { a.local = append(a.local, scopes...) }

// Enabled reports whether there are tokens. Without tokens every caller is the local owner.
func (a *Authenticator) Enabled() bool { return a != nil && len(a.entries) > 0 }

// SeveralOwners reports whether the tokens have more than one owner.
func (a *Authenticator) SeveralOwners() bool { return a != nil && a.several }

// SeveralOwners reports whether tokens have more than one owner.
func SeveralOwners(tokens []Token) bool {
	return slices.ContainsFunc(tokens, func(t Token) bool { return t.Owner != tokens[0].Owner })
}

// Authenticate returns the Principal of an Authorization header. Without tokens (see Enabled) it ignores the header and returns
// the local owner with exec, read and the scopes of Allow. The time depends only on the number of tokens and the length of the header.
// Codes: unauthenticated.
func (a *Authenticator) Authenticate(authorizationHeader string) (executor.Principal, error) {
	if !a.Enabled() {
		p := executor.Principal{Owner: executor.LocalOwner, Scopes: []executor.Scope{executor.ScopeExec, executor.ScopeRead}}
		if a != nil {
			p.Scopes = append(p.Scopes, a.local...)
		}
		return p, nil
	}
	scheme, token, _ := strings.Cut(authorizationHeader, " ")
	token = strings.Trim(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return executor.Principal{}, executor.Errorf(executor.Unauthenticated, "Authorization: must be \"Bearer TOKEN\", with a token of this server; its clients take it from PYEXEC_TOKEN")
	}
	if len(token) > MaxTokenBytes {
		return executor.Principal{}, executor.Errorf(executor.Unauthenticated, "Authorization: the bearer token is unknown: it must be one of this server's tokens, whole and without quotes")
	}
	sum := sha256.Sum256([]byte(token))
	found := -1
	// The loop always compares all tokens, so that the time does not show which token matched, or how much of it.
	for i := range a.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], a.entries[i].sum[:]), i, found)
	}
	if found < 0 {
		return executor.Principal{}, executor.Errorf(executor.Unauthenticated, "Authorization: the bearer token is unknown: it must be one of this server's tokens, whole and without quotes")
	}
	p := a.entries[found].principal
	p.Scopes = slices.Clone(p.Scopes)
	return p, nil
}
