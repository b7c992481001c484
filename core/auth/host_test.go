package auth_test

import (
	"os"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/auth"
	"github.com/python-executor/python-executor/core/executor"
)

func TestCheckHost(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	local := []string{
		"", "localhost", "LOCALHOST", "localhost:8080", "localhost.", "LocalHost.:1", "app.localhost", "127.0.0.1", "127.0.0.1:8080", "127.9.8.7", "[::1]",
		"[::1]:8080", "::1", "[::ffff:127.0.0.1]:80", "127.0.0.1.",
	}
	own := []string{"192.0.2.7", "192.0.2.7:80", "[2001:db8::1]:80", "[2001:db8::1]", "2001:db8::1", "0.0.0.0:80", "server", "SERVER.:80", "Bound.Example", "bound.example.:8080", strings.ToUpper(name)}
	foreign := []string{
		"evil.example", "evil.example:8080", "evil.example.", "EVIL.example.:80", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:localhost",
		"localhost..", "127.0.0.1.nip.io", "evillocalhost.com", "[::1].evil.example", "[::1]evil.example:80", "evil.example@localhost.com",
	}
	with, err := auth.New([]auth.Token{{Owner: "ann", SHA256: hash("x")}})
	if err != nil {
		t.Fatal(err)
	}
	without, err := auth.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(bind string, hosts []string, want bool) {
		t.Helper()
		for _, host := range hosts {
			for _, a := range []*auth.Authenticator{nil, without} {
				err := a.CheckHost(host, bind)
				if ok := err == nil; ok != want {
					t.Errorf("bind %q, Host %q: %v", bind, host, err)
				}
				if err != nil && executor.CodeOf(err) != executor.Denied {
					t.Errorf("bind %q, Host %q: code %s", bind, host, executor.CodeOf(err))
				}
			}
			if err := with.CheckHost(host, bind); err != nil {
				t.Errorf("with tokens, bind %q, Host %q: %v", bind, host, err)
			}
		}
	}
	for _, bind := range []string{"", "127.0.0.1:8080", "[::1]:8080", "localhost:0"} {
		check(bind, local, true)
		check(bind, own, false)
		check(bind, foreign, false)
	}
	for _, bind := range []string{"bound.example:8080", "Bound.Example.:80"} {
		check(bind, local, true)
		check(bind, own, true)
		check(bind, foreign, false)
	}
	for _, bind := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "192.0.2.1:80"} {
		check(bind, local, true)
		check(bind, []string{"bound.example"}, false)
		check(bind, foreign, false)
	}
}
