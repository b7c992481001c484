package dockerbackend

import (
	"slices"
	"testing"

	"github.com/python-executor/python-executor/plugins/backend-docker/imagename"
)

const someDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestADigestIsTheOneOfTheRepositoryThatWasAskedFor(t *testing.T) {
	t.Parallel()
	facts := imageFacts{ID: "sha256:id", RepoDigests: []string{"ghcr.io/acme/python@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "python@" + someDigest}}
	var got []string
	for _, name := range []string{"python:3", "other:1"} {
		r, err := imagename.ParseRef(name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, digestOf(r, facts))
	}
	if want := []string{someDigest, "sha256:id"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
