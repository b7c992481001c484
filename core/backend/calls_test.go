package backend

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

// scriptedConn notes its calls and answers each with err.
type scriptedConn struct {
	err  error
	said []string
}

func (c *scriptedConn) note(words ...string) error {
	c.said = append(c.said, strings.Join(words, " "))
	return c.err
}

func (c *scriptedConn) RestartSession(_ context.Context, wipe bool) error {
	return c.note("restart", map[bool]string{true: "wipe"}[wipe])
}

func (c *scriptedConn) Variables(context.Context) ([]executor.Variable, error) {
	return []executor.Variable{{Name: "x"}}, c.note("variables")
}

func (c *scriptedConn) ListFiles(_ context.Context, path string, recursive bool) ([]executor.File, error) {
	return []executor.File{{Path: path}}, c.note("list", path, map[bool]string{true: "recursive"}[recursive])
}

func (c *scriptedConn) ReadFile(_ context.Context, path string) (executor.File, io.ReadCloser, error) {
	return executor.File{Path: path}, io.NopCloser(strings.NewReader("content")), c.note("read", path)
}

func (c *scriptedConn) WriteFile(_ context.Context, file executor.File, r io.Reader) (executor.File, error) {
	content, err := io.ReadAll(r)
	return executor.File{Path: file.Path}, errors.Join(err, c.note("write", file.Path, string(content)))
}

func (c *scriptedConn) RemoveFile(_ context.Context, path string) error {
	return c.note("remove", path)
}

// eachCall calls every method of Calls once, and tells the error of each.
func eachCall(t *testing.T, c Calls, tell func(error)) {
	t.Helper()
	tell(c.RestartSession(t.Context(), "id", true))
	_, err := c.Variables(t.Context(), "id")
	tell(err)
	_, err = c.ListFiles(t.Context(), "id", "a", true)
	tell(err)
	_, content, err := c.ReadFile(t.Context(), "id", "b")
	if tell(err); err == nil {
		if text, err := io.ReadAll(content); err != nil || string(text) != "content" {
			t.Errorf("the file holds %q, %v", text, err)
		}
	}
	_, err = c.WriteFile(t.Context(), "id", executor.File{Path: "c", SizeBytes: 3}, strings.NewReader("new"))
	tell(err)
	tell(c.RemoveFile(t.Context(), "id", "d"))
}

// TestACallOfASessionReportsWhatItsBackendSays: the backend may know better than the connection why a call has failed.
func TestACallOfASessionReportsWhatItsBackendSays(t *testing.T) {
	t.Parallel()
	cut, better, notHeld := errors.New("the connection was cut"), errors.New("the program was out of memory"), NotHeld("id")
	for _, c := range []struct {
		name      string
		use, call error
		want      error
	}{
		{"all is well", nil, nil, nil},
		{"the connection fails", nil, cut, better},
		{"there is no session", notHeld, nil, notHeld},
	} {
		conn := &scriptedConn{err: c.call}
		done := 0
		calls := Calls{Use: func(_ context.Context, id string) (Conn, func(error) error, error) {
			if id != "id" {
				t.Errorf("%s: the id %q", c.name, id)
			}
			return conn, func(err error) error {
				if done++; !errors.Is(err, c.call) {
					t.Errorf("%s: the backend is told %v", c.name, err)
				}
				if err != nil {
					return better
				}
				return nil
			}, c.use
		}}
		eachCall(t, calls, func(err error) {
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		said, want := strings.Join(conn.said, ", "), "restart wipe, variables, list a recursive, read b, write c new, remove d"
		if c.use != nil {
			want = ""
		}
		if said != want || done != len(conn.said) {
			t.Errorf("%s: called %q, %d times done", c.name, said, done)
		}
	}
}
