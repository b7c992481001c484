package workers

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/fake"
)

func TestAWorkspaceCrossesAsBytesWhateverItsNameIs(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		seen := make(chan [32]byte, 1)
		s.worker(1, fake.Options{Hook: func(_ context.Context, j executor.Job, _ executor.Sink, _ fake.RunFunc) (executor.Result, error) {
			if j.Workspace.Path != "" {
				t.Errorf("the worker got the name %s", j.Workspace.Path)
			}
			r, err := j.Workspace.Open()
			if err != nil {
				return executor.Result{}, err
			}
			defer r.Close()
			h := sha256.New()
			if _, err := io.Copy(h, r); err != nil {
				return executor.Result{}, err
			}
			seen <- [32]byte(h.Sum(nil))
			return executor.Result{Status: executor.StatusKilled}, nil
		}})
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB, for which a plugin of this machine would get a socket
		path := filepath.Join(t.TempDir(), "workspace.tar")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		j := job("print no")
		j.Workspace = &executor.Source{Path: path, SizeBytes: int64(len(content)), Replayable: true, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
		c := start(t, s.pool(), j)
		<-c.done
		if c.err != nil || <-seen != sha256.Sum256(content) {
			t.Errorf("%+v, %v", c.result, c.err)
		}
	})
}

func TestTheErrorOfASinkIsReturnedAsItIs(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		s.worker(1, fake.Options{})
		p := s.pool()
		full := executor.Errorf(executor.Unavailable, "the log is full")
		if _, err := p.Run(t.Context(), job("print x"), failing{full}); !errors.Is(err, full) || err.Error() != full.Error() {
			t.Errorf("got %v", err)
		}
	})
}

type failing struct{ err error }

func (f failing) Emit(executor.Event) error                 { return f.err }
func (f failing) Artifact(h *tar.Header, r io.Reader) error { return f.err }

func TestRemoveEndsWhatRuns(t *testing.T) {
	inSite(t, func(t *testing.T, s *site) {
		a := s.worker(1, fake.Options{})
		p := s.pool()
		c := running(t, p, job("hang"))
		if err := p.Remove(t.Context(), c.job.ID); err != nil {
			t.Error(err)
		}
		<-c.done
		if len(a.fake.Running()) > 0 || !slices.Contains(a.fake.Removed(), c.job.ID) {
			t.Errorf("running %v, removed %v", a.fake.Running(), a.fake.Removed())
		}
		if err := p.Remove(t.Context(), "exe_unknown"); err != nil || !slices.Contains(a.fake.Removed(), "exe_unknown") {
			t.Errorf("%v, removed %v", err, a.fake.Removed())
		}
	})
}
