package executor

import "testing"

func TestTerminalStatuses(t *testing.T) {
	for _, s := range Statuses() {
		if want := s != StatusQueued && s != StatusRunning; s.Terminal() != want {
			t.Errorf("%s: terminal %v", s, s.Terminal())
		}
	}
	if StatusUnknown.Terminal() {
		t.Error("the unknown status is not terminal")
	}
}

func TestScopes(t *testing.T) {
	tests := []struct {
		has   []Scope
		asked Scope
		want  bool
	}{
		{[]Scope{ScopeExec}, ScopeExec, true},
		{[]Scope{ScopeExec}, ScopeRead, false},
		{[]Scope{ScopeAdmin}, ScopeRead, true},
		{[]Scope{ScopeAdmin}, ScopeExec, true},
		{[]Scope{ScopeAdmin}, ScopeTrusted, false},
		{[]Scope{ScopeAdmin}, ScopeScripts, false},
		{nil, ScopeRead, false},
	}
	for _, tt := range tests {
		if got := (Principal{Scopes: tt.has}).Has(tt.asked); got != tt.want {
			t.Errorf("%v has %s: %v", tt.has, tt.asked, got)
		}
	}
	if len(Scopes()) != 5 {
		t.Errorf("%v", Scopes())
	}
}

func TestThePrincipalTravelsInTheContext(t *testing.T) {
	local := PrincipalFrom(t.Context())
	if local.Owner != LocalOwner || !local.Has(ScopeExec) || !local.Has(ScopeRead) || local.Has(ScopeTrusted) || local.Has(ScopeAdmin) {
		t.Errorf("nobody in particular is %+v", local)
	}
	if p := PrincipalFrom(WithPrincipal(t.Context(), Principal{Owner: "ann"})); p.Owner != "ann" || p.Has(ScopeRead) {
		t.Errorf("%+v", p)
	}
}

func TestPages(t *testing.T) {
	for limit, want := range map[int]int{-1: 50, 0: 50, 1: 1, 500: 500, 501: 500} {
		if got := (Filter{Limit: limit}).PageSize(); got != want {
			t.Errorf("limit %d: %d", limit, got)
		}
	}
}

func TestPackagesOfModules(t *testing.T) {
	for module, want := range map[string]string{
		"sklearn.svm": "scikit-learn", "google.protobuf": "protobuf", "google.cloud.storage": "google-cloud-storage", "typing_extensions": "typing-extensions", "numpy": "numpy",
	} {
		if got := PackageOf(module); got != want {
			t.Errorf("%s is in %s, want %s", module, got, want)
		}
	}
}
