package dockerbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/plugins/backend-docker/dockertest"
)

func TestRequirementsAreThereWithoutANetwork(t *testing.T) {
	house := newWheelhouse(t)
	house.probe()
	for name, more := range map[string]map[string]any{
		"from an index":       {"index_url": house.url(t)},
		"from a folder":       {"index_url": newWheelhouse(t).url(t), "find_links": house.folder(t)},
		"from an extra index": {"index_url": house.url(t) + "/nothing-here", "extra_index_urls": []string{house.url(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := backend(t, map[string]any{"prepare": more})
			forgetPrepared(t, b)
			out, r := succeeds(t, b, executor.Spec{
				Code:         "import pyexec_probe, pyexec_base, sys; print(pyexec_probe.__version__, pyexec_base.__version__, sys.prefix)\nimport socket\ntry:\n  socket.create_connection(('1.1.1.1', 53), 1)\nexcept OSError as e: print('no network')",
				Requirements: "pyexec_probe < 2   # a comment\n",
			})
			if out != "1.2.3 1.0 "+preparedEnv+"\nno network\n" {
				t.Errorf("got %q", out)
			}
			if want := []string{"pyexec-base==1.0", "pyexec-probe==1.2.3"}; !slices.Equal(r.Requirements, want) {
				t.Errorf("resolved %v, want %v", r.Requirements, want)
			}
			if !strings.HasPrefix(r.ImageDigest, "sha256:") || r.PythonVersion == "" {
				t.Errorf("digest %q, python %q", r.ImageDigest, r.PythonVersion)
			}
		})
	}
}

// forgetPrepared removes, after t, the images that b's preparations have made.
func forgetPrepared(t testing.TB, b *Backend) {
	t.Helper()
	before := preparedImages(t, b)
	t.Cleanup(func() {
		for _, id := range preparedImages(t, b) {
			if !slices.Contains(before, id) {
				ctx, cancel := cleanUp(context.Background())
				_ = b.daemon.removeImage(ctx, id) // another test may still use it
				cancel()
			}
		}
	})
}

func preparedImages(t testing.TB, b *Backend) []string {
	t.Helper()
	ctx, cancel := cleanUp(context.Background())
	defer cancel()
	ids, err := b.daemon.images(ctx, map[string]string{labelPrepared: ""})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

var (
	_ = dockertest.Bare
	_ = fmt.Sprint
	_ = time.Second
)
