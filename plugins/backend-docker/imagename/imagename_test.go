package imagename

import (
	"errors"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

const someDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestAnImageMayBeUsedOnlyIfAListAllowsIt(t *testing.T) {
	t.Parallel()
	const other = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for _, c := range []struct {
		list  string
		yes   []string
		never []string
	}{
		{
			list:  "python",
			yes:   []string{"python", "python:3.12-slim", "docker.io/library/python:3", "index.docker.io/library/python", "library/python:x", "python@" + someDigest, "python:3.12@" + someDigest},
			never: []string{"pythonx", "evil/python", "ghcr.io/library/python", "docker.io/evil/python", "localhost/python", "localhost:5000/library/python"},
		},
		{
			// A tag beside a digest says nothing about the image.
			list:  "python:3.*",
			yes:   []string{"python:3.12", "docker.io/python:3.9-slim"},
			never: []string{"python", "python:2.7", "python:3.12@" + someDigest, "python@" + someDigest},
		},
		{
			list:  "python@" + someDigest,
			yes:   []string{"python@" + someDigest, "python:3.12@" + someDigest},
			never: []string{"python:3.12", "python@" + other},
		},
		{
			list:  "ghcr.io/acme/*",
			yes:   []string{"ghcr.io/acme/a", "ghcr.io/acme/b:1", "ghcr.io/acme/c@" + someDigest},
			never: []string{"ghcr.io/acme/a/b", "ghcr.io/acme", "ghcr.io/acmex/a", "ghcr.io.evil.org/acme/a", "acme/a"},
		},
		{list: "ghcr.io/acme/**", yes: []string{"ghcr.io/acme/a/b/c:1"}, never: []string{"ghcr.io/acm/a"}},
		{list: "registry.example.org:5000/team/app:v?", yes: []string{"registry.example.org:5000/team/app:v1"}, never: []string{"registry.example.org/team/app:v1", "registry.example.org:5000/team/app:v10"}},
		{list: "acme/*", yes: []string{"acme/a", "docker.io/acme/a"}, never: []string{"acme.io/a", "quay.io/acme/a", "a"}},
		{list: "*", yes: []string{"python", "a.b/c/d/e:1", "93.184.216.34:5000/x"}, never: []string{"localhost:5000/x@" + someDigest, "127.0.0.1:5000/x", "10.0.0.1/x", "registry:5000/x", PreparedRepository, PreparedRepository + ":" + someDigest[7:47], "docker.io/" + PreparedRepository + "/x"}},
		{list: "*/x", yes: []string{"ghcr.io/x"}, never: []string{"localhost/x", "127.0.0.1:5000/x", "ghcr.io/y"}},
		{list: "127.0.0.1:*/x", yes: []string{"127.0.0.1:5000/x"}, never: []string{"127.0.0.2:5000/x", "10.0.0.1/x"}},
		{list: "localhost/team/*", yes: []string{"localhost/team/a"}, never: []string{"docker.io/localhost/team/a"}},
		{list: "loc?lhost/app", yes: []string{"localhost/app"}, never: []string{"docker.io/localhost/app"}},
		{list: "index.docker.io/python", yes: []string{"python", "docker.io/library/python:3"}, never: []string{"index/python"}},
		{list: "docker.io/acme**", yes: []string{"acme/a", "acme-two/a/b"}, never: []string{"ghcr.io/acme/a", "library/acme"}},
		{list: "ghcr.io/acme?app", yes: []string{"ghcr.io/acme-app"}, never: []string{"ghcr.io/acme/app"}},
		{list: "docker.io/library/alp*", yes: []string{"alpine"}, never: []string{"busybox"}},
	} {
		a, err := NewAllowList([]string{c.list}, "default:1", "backends.docker.images")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(c.yes, "default:1", "docker.io/library/default:1") {
			if _, err := a.Check(name); err != nil {
				t.Errorf("%s: %s is refused: %v", c.list, name, err)
			}
		}
		for _, name := range append(c.never, "default:2") {
			if c.list == "*" && name == "default:2" {
				continue
			}
			if _, err := a.Check(name); executor.CodeOf(err) != executor.Denied {
				t.Errorf("%s: %s is not denied: %v", c.list, name, err)
			}
		}
	}
}

func TestWhatIsNoNameOfAnImageIsInvalid(t *testing.T) {
	t.Parallel()
	a, err := NewAllowList([]string{"*"}, "default:1", "backends.docker.images")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", " ", "UPPER", "a b", "a\nb", "../etc", "-x", "a:b:c", "a@sha256:short", someDigest[7:], "a//b", "http://x/y", "a:tag with space", "é",
	} {
		_, err := a.Check(name)
		if e, ok := errors.AsType[*executor.Error](err); !ok || e.Code != executor.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != "docker_image" {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestANameIsPassedOnInFullSoThatItIsNoBeginningOfAnID(t *testing.T) {
	t.Parallel()
	r, err := ParseRef("0123456789ab")
	if err != nil || r.String() != "docker.io/library/0123456789ab:latest" || r.Familiar() != "0123456789ab:latest" {
		t.Errorf("%q %q %v", r, r.Familiar(), err)
	}
}

func TestAPatternThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", " ", "a b", "python:", "python@", ":x", "@x", "a[b]", "{a,b}", `a\b`} {
		if _, err := ParsePattern(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestTheImageFollowsFromWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		image, minor, defaultImage, want string
	}{
		{"", "", "python:3.12-slim", "python:3.12-slim"},
		{"", "3.12", "python:3.12-slim", "python:3.12-slim"},
		{"", "3.11", "python:3.12-slim", "python:3.11-slim"},
		{"", "3.11", "python:3.12.4-slim-bookworm", "python:3.11-slim-bookworm"},
		{"", "3.11", "python:3.12", "python:3.11"},
		{"", "3.11", "python:3.12@" + someDigest, "python:3.11"},
		{"", "3.11", "ours:1", "ours:1"},
		{"python:3.11", "3.11", "python:3.12-slim", "python:3.11"},
		{"python:3.11", "", "python:3.12-slim", "python:3.11"},
		{"ours:3.10", "3.11", "python:3.12-slim", "ours:3.10"},
		{"python:3.11", "3.12", "python:3.12-slim", ""},
		{"python:3.1", "3.11", "python:3.12-slim", ""},
	} {
		got, err := Choose(c.image, c.minor, c.defaultImage)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q, %q, %q: %q %v, want %q", c.image, c.minor, c.defaultImage, got, err, c.want)
		}
	}
}

func FuzzNoNameEscapesTheList(f *testing.F) {
	for _, name := range []string{"python:3", "ghcr.io/acme/x@" + someDigest, "localhost:1/a/b:c", "docker.io/library/python"} {
		f.Add(name)
	}
	a, err := NewAllowList([]string{"python", "ghcr.io/acme/*"}, "python:3", "images")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r, err := a.Check(name)
		if err != nil {
			return
		}
		again, err := ParseRef(r.String())
		if err != nil || again != r {
			t.Errorf("%q: %q is another name than %q (%v)", name, r, again, err)
		}
		if r.Repository != officialPython && !glob("ghcr.io/acme/*").MatchString(r.Repository) {
			t.Errorf("%q is allowed as %q", name, r)
		}
	})
}
