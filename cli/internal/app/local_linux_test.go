package app

import (
	"log/slog"
	"testing"

	"github.com/python-executor/python-executor/core/config"
	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestACommandRunsItsBackendItself(t *testing.T) {
	local := testBundle()
	p := local.Plugins["backend-fake"]
	p.Local = fake.Factory
	local.Plugins["backend-fake"] = p
	for name, test := range map[string]struct {
		change func(*EmbeddedOptions)
		want   bool
	}{
		"one command":                    {func(*EmbeddedOptions) {}, true},
		"more than one call":             {func(o *EmbeddedOptions) { o.Lasting = true }, true},
		"a backend that needs a process": {func(o *EmbeddedOptions) { o.Bundle = testBundle() }, false},
		"a plugin of its own":            {func(o *EmbeddedOptions) { o.Config.Backends["fake"] = config.Backend{Path: "/x", SHA256: "y"} }, false},
		"two backends":                   {func(o *EmbeddedOptions) { o.Config.Backends["other"] = config.Backend{Type: "fake"} }, false},
	} {
		o := EmbeddedOptions{Config: fakeConfig(t), Bundle: local}
		test.change(&o)
		if _, factory := o.local(); (factory != nil) != test.want {
			t.Errorf("%s: %v", name, !test.want)
		}
	}
	l, err := Embedded(t.Context(), EmbeddedOptions{Config: fakeConfig(t), Bundle: local, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx := executor.WithPrincipal(t.Context(), executor.Principal{Owner: executor.LocalOwner, Scopes: executor.Scopes()})
	infos, err := l.Backends(ctx)
	if err != nil || len(infos) != 1 || infos[0].Details["pid"] != "" {
		t.Errorf("the backend has a process of its own: %+v, %v", infos, err)
	}
	if r, out := followed(t, l, executor.Spec{Code: "print hello"}); r.Status != executor.StatusSucceeded || out != "hello\n" {
		t.Errorf("%+v: %q", r, out)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
