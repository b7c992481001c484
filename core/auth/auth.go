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
	// Owner of what the bearer makes; not empty.
	Owner string
	// SHA256 is the hex SHA-256 of the token's bytes.
	SHA256 string
	// Scopes of the bearer. Empty means exec and read.
	Scopes []executor.Scope
}

// Authenticator knows the accepted tokens. It does not change after New and is safe for concurrent use. The nil
// Authenticator is one without tokens.
type Authenticator struct {
	entries []entry
	local   []executor.Scope
}

type entry struct {
	sum       [sha256.Size]byte
	principal executor.Principal
}

// MaxTokenBytes is the longest bearer token that is looked at; a longer one is wrong.
const MaxTokenBytes = 4096

// New returns an Authenticator of tokens. It reports every bad token, by its index, in one error. Codes: invalid.
func New(tokens []Token) (*Authenticator, error) {
	a := &Authenticator{entries: make([]entry, 0, len(tokens))}
	var bad []executor.FieldError
	report := func(i int, key, format string, args ...any) {
		bad = append(bad, executor.FieldError{Field: fmt.Sprintf("http.tokens[%d].%s", i, key), Message: fmt.Sprintf(format, args...)})
	}
	for i, t := range tokens {
		e := entry{principal: executor.Principal{Owner: t.Owner, Scopes: slices.Clone(t.Scopes)}}
		if t.Owner == "" {
			report(i, "owner", "must not be empty")
		}
		// The value is not repeated: somebody may have put the token itself there.
		if sum, err := hex.DecodeString(t.SHA256); err != nil || len(sum) != sha256.Size {
			report(i, "sha256", "must be the SHA-256 of the token, 64 hexadecimal digits")
		} else {
			copy(e.sum[:], sum)
		}
		for _, known := range a.entries {
			if known.sum == e.sum {
				report(i, "sha256", "is the same as another token's")
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
	if len(bad) > 0 {
		msgs := make([]string, len(bad))
		for i, b := range bad {
			msgs[i] = b.Field + ": " + b.Message
		}
		return nil, &executor.Error{Code: executor.Invalid, Message: strings.Join(msgs, "; "), Fields: bad}
	}
	return a, nil
}

// Allow gives the local owner more scopes where there is no token. It is called before the first Authenticate.
func (a *Authenticator) Allow(scopes ...executor.Scope) { a.local = append(a.local, scopes...) }

// Enabled reports whether there is any token. Without one everybody is the local owner.
func (a *Authenticator) Enabled() bool { return a != nil && len(a.entries) > 0 }

// Authenticate returns who sent this Authorization header. When not Enabled, that is the local owner with exec and read,
// whatever the header says. The time it takes depends on the number of tokens and the length of the header only.
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
		return executor.Principal{}, executor.Errorf(executor.Unauthenticated, "a bearer token is needed")
	}
	if len(token) > MaxTokenBytes {
		return executor.Principal{}, executor.Errorf(executor.Unauthenticated, "the bearer token is not known")
	}
	sum := sha256.Sum256([]byte(token))
	found := -1
	// No early end: which token matched, or how much of one, must not show in the time.
	for i := range a.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], a.entries[i].sum[:]), i, found)
	}
	if found < 0 {
		return executor.Principal{}, executor.Errorf(executor.Unauthenticated, "the bearer token is not known")
	}
	p := a.entries[found].principal
	p.Scopes = slices.Clone(p.Scopes)
	return p, nil
}
