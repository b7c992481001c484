package auth_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", auth.MaxTokenBytes)
	a, err := auth.New([]auth.Token{
		{Owner: "ann", SHA256: hash("first"), Scopes: []executor.Scope{executor.ScopeAdmin}},
		{Owner: "eve", SHA256: hash(longest), Scopes: []executor.Scope{executor.ScopeRead}},
		{Owner: "eve", SHA256: hash(longest + "a")},
		{Owner: "bob", SHA256: strings.ToUpper(hash("second"))},
		{Owner: "ann", SHA256: hash("third"), Scopes: []executor.Scope{executor.ScopeExec, executor.ScopeTrusted}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !a.Enabled() {
		t.Fatal("not enabled")
	}
	tests := []struct {
		name, header, owner string
		scopes              []executor.Scope
	}{
		{"the first token is its owner", "Bearer first", "ann", []executor.Scope{executor.ScopeAdmin}},
		{"a token without scopes may exec and read", "Bearer second", "bob", []executor.Scope{executor.ScopeExec, executor.ScopeRead}},
		{"the last token of the same owner has its own scopes", "Bearer third", "ann", []executor.Scope{executor.ScopeExec, executor.ScopeTrusted}},
		{"the scheme's case does not matter", "bEaReR first", "ann", []executor.Scope{executor.ScopeAdmin}},
		{"spaces around the token do not matter", "Bearer   first ", "ann", []executor.Scope{executor.ScopeAdmin}},
		{"a missing header is nobody", "", "", nil},
		{"another scheme is nobody", "Basic first", "", nil},
		{"a scheme alone is nobody", "Bearer", "", nil},
		{"an empty token is nobody", "Bearer ", "", nil},
		{"a wrong token is nobody", "Bearer firs", "", nil},
		{"a hash is not a token", "Bearer " + hash("first"), "", nil},
		{"the longest token is its owner", "Bearer " + longest, "eve", []executor.Scope{executor.ScopeRead}},
		{"a longer token is nobody, although its hash is known", "Bearer " + longest + "a", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := a.Authenticate(tt.header)
			if tt.owner == "" {
				if executor.CodeOf(err) != executor.Unauthenticated {
					t.Fatalf("got %+v, %v", p, err)
				}
				if strings.Contains(err.Error(), "first") {
					t.Fatalf("the error repeats the token: %v", err)
				}
				return
			}
			if err != nil || p.Owner != tt.owner || !slices.Equal(p.Scopes, tt.scopes) {
				t.Fatalf("got %+v, %v", p, err)
			}
		})
	}
}

func TestWithoutTokensEverybodyIsTheLocalOwner(t *testing.T) {
	t.Parallel()
	empty, err := auth.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*auth.Authenticator{nil, empty} {
		p, err := a.Authenticate("Bearer whatever")
		if err != nil || p.Owner != executor.LocalOwner || a.Enabled() {
			t.Fatalf("got %+v, %v", p, err)
		}
		if p.Has(executor.ScopeTrusted) || p.Has(executor.ScopeScripts) || p.Has(executor.ScopeAdmin) || !p.Has(executor.ScopeExec) || !p.Has(executor.ScopeRead) {
			t.Fatalf("the local owner has %v", p.Scopes)
		}
	}
	empty.Allow(executor.ScopeScripts)
	if p, err := empty.Authenticate(""); err != nil || !p.Has(executor.ScopeScripts) || !p.Has(executor.ScopeExec) {
		t.Errorf("after Allow the local owner has %v, error %v", p.Scopes, err)
	}
}

func TestNewReportsEveryBadToken(t *testing.T) {
	t.Parallel()
	_, err := auth.New([]auth.Token{
		{Owner: "", SHA256: hash("a")},
		{Owner: "bob", SHA256: "secret in the wrong place"},
		{Owner: "bob", SHA256: hash("b"), Scopes: []executor.Scope{"root"}},
		{Owner: "eve", SHA256: hash("b")},
	})
	if executor.CodeOf(err) != executor.Invalid {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"http.tokens[0].owner", "http.tokens[1].sha256", "http.tokens[2].scopes", "http.tokens[3].sha256"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "secret in") {
		t.Errorf("%v repeats a secret", err)
	}
}

func TestACallerCannotChangeAnotherOnesScopes(t *testing.T) {
	t.Parallel()
	a, err := auth.New([]auth.Token{{Owner: "ann", SHA256: hash("x"), Scopes: []executor.Scope{executor.ScopeRead}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Authenticate("Bearer x")
	if err != nil {
		t.Fatal(err)
	}
	p.Scopes[0] = executor.ScopeTrusted
	if p, err = a.Authenticate("Bearer x"); err != nil || p.Has(executor.ScopeTrusted) {
		t.Fatalf("got %+v, %v", p, err)
	}
}
