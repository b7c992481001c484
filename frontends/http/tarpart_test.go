package httpfrontend

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// submitting sends a request with a tar of size bytes to a Service whose Submit is a test's.
func submitting(t *testing.T, size int64, submit func(in executor.Input, read *int64)) {
	t.Helper()
	svc := hello().service()
	body := &countingReader{r: io.MultiReader(tarUpload(size), strings.NewReader("\r\n--b\r\nContent-Disposition: form-data; name=\"stdin\"\r\n\r\ntyped\r\n--b--\r\n"))}
	svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
		submit(in, &body.n)
		return hello().state(), nil
	}
	w := do(t, handlerOf(t, svc), http.MethodPost, "/api/v1/exec/async", body, "Content-Type", "multipart/form-data; boundary=b")
	if w.Code != http.StatusAccepted {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAReaderOfATarMayCloseItEarly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		left int64
		// drained: what is left is read, so that the body is at its end.
		drained bool
	}{{0, true}, {closeDrain / 2, true}, {4 * closeDrain, false}} {
		const size = 8 << 20
		submitting(t, size, func(in executor.Input, read *int64) {
			r, err := in.Workspace.Open()
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := io.CopyN(io.Discard, r, size-tt.left); err != nil {
				t.Error(err)
			}
			before := *read
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if drained := *read >= size; drained != tt.drained || *read-before > 2*closeDrain {
				t.Errorf("%d bytes were left: %d were read by Close, all: %t, want %t", tt.left, *read-before, drained, tt.drained)
			}
			if tt.drained {
				if text, err := readSource(in.Stdin); text != "typed" || err != nil {
					t.Errorf("stdin is %q, %v", text, err)
				}
			}
		})
	}
}

func TestATarIsStreamedOnce(t *testing.T) {
	t.Parallel()
	submitting(t, 1<<20, func(in executor.Input, _ *int64) {
		if _, err := in.Workspace.Open(); err != nil {
			t.Error(err)
		}
		if _, err := in.Workspace.Open(); executor.CodeOf(err) != executor.Internal {
			t.Errorf("opened twice: %v", err)
		}
	})
}

func TestAStdinBehindABrokenTarIsAnError(t *testing.T) {
	t.Parallel()
	body, contentType := form(part{"metadata", "{}", nil}, part{"tar", strings.Repeat("d", 1<<20), nil})
	for _, open := range []bool{false, true} {
		svc := hello().service()
		svc.submit = func(_ context.Context, _ executor.Spec, in executor.Input) (executor.Execution, error) {
			if open {
				r, err := in.Workspace.Open()
				if err != nil {
					t.Error(err)
				}
				_ = r.Close()
			}
			if _, err := in.Stdin.Open(); err == nil {
				t.Error("what follows a tar that was cut is taken for the input")
			}
			return hello().state(), nil
		}
		w := do(t, handlerOf(t, svc), http.MethodPost, "/api/v1/exec/async", io.MultiReader(bytes.NewReader(body[:len(body)-500])), "Content-Type", contentType)
		wantProblem(t, w, 400, executor.Invalid)
	}
}
