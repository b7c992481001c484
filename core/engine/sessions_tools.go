package engine

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/python-executor/python-executor/core/executor"
)

const (
	// variablesTimeout bounds the making of a list of variables, whose previews are the user's code.
	variablesTimeout = time.Minute
	maxVariables     = 1000
	maxPreview       = 200
)

// Variables implements executor.SessionTools.
func (e *Engine) Variables(ctx context.Context, id string) ([]executor.Variable, error) {
	s, _, err := e.activeSession(ctx, id)
	if err != nil {
		return nil, err
	}
	work, release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	list, err := inSession(work, e, s, "list the variables of "+id, variablesTimeout, func(ctx context.Context, b executor.SessionBackend) ([]executor.Variable, error) {
		return b.Variables(ctx, id)
	})
	if err != nil {
		return nil, e.sessionError(s, "list variables", err)
	}
	slices.SortFunc(list, func(a, b executor.Variable) int { return strings.Compare(a.Name, b.Name) })
	list = list[:min(len(list), maxVariables)]
	for i := range list {
		if runes := []rune(strings.ToValidUTF8(list[i].Preview, "\uFFFD")); len(runes) > maxPreview {
			list[i].Preview = string(runes[:maxPreview-1]) + "…"
		}
	}
	return list, nil
}

// AddRequirements implements executor.SessionTools.
func (e *Engine) AddRequirements(ctx context.Context, id, requirements string) ([]string, error) {
	s, _, err := e.activeSession(ctx, id)
	if err != nil {
		return nil, err
	}
	var invalid problems
	invalid.text("requirements_txt", requirements, maxRequirements)
	if strings.TrimSpace(requirements) == "" {
		invalid.add("requirements_txt", "must not be empty")
	}
	if err := invalid.err(executor.Invalid); err != nil {
		return nil, err
	}
	work, release, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	all, err := inSession(work, e, s, "install into "+id, e.deadlines.Prepare, func(ctx context.Context, b executor.SessionBackend) ([]string, error) {
		return b.AddRequirements(ctx, id, requirements)
	})
	if err != nil {
		return nil, e.sessionError(s, "add requirements", err)
	}
	e.mu.Lock()
	s.rec.Requirements = slices.Clone(all)
	e.mu.Unlock()
	s.save()
	return all, nil
}

// sessionError is what a caller gets of err. Where s was lost or closed meanwhile, that is the answer.
func (e *Engine) sessionError(s *session, doing string, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	code := executor.CodeOf(err)
	switch gone := s.rec.Status != executor.SessionActive; {
	case gone && code == executor.NotFound, s.rec.Status == executor.SessionClosed && code == executor.Unavailable:
		return errNotActive(s.rec.Session)
	case s.closed != nil && code == executor.Unavailable: // to try again would not help
		return s.openLocked()
	}
	return e.internal(doing, err)
}

// cleanPath checks a path in a work folder. root: the folder itself may be meant.
func cleanPath(name string, root bool) (string, error) {
	clean := path.Clean(name)
	if name == "" {
		clean = "."
	}
	bad := ""
	switch {
	case len(name) > maxPath:
		bad = "is too long"
	case strings.ContainsRune(name, 0) || !utf8.ValidString(name):
		bad = "is no path"
	case path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), ".."):
		bad = "must be relative and stay in the work folder"
	case clean == "." && !root:
		bad = "must name a file"
	}
	if bad != "" {
		return "", executor.FieldErrorf(executor.Invalid, "path", "%s (got %q)", bad, clip(strings.ToValidUTF8(name, "\uFFFD"), 100))
	}
	if clean == "." {
		clean = ""
	}
	return clean, nil
}

// withFiles begins a file operation in a Session; done ends it. A lost one's files can be had as long as its sandbox is
// there.
func (e *Engine) withFiles(ctx context.Context, id, name string, root bool, scope executor.Scope) (s *session, clean string, done func(), err error) {
	s, view, err := e.ownSession(ctx, id, scope)
	if err == nil && s == nil {
		err = errNotActive(view)
	}
	if err == nil {
		err = e.accepting()
	}
	if err != nil {
		return nil, "", nil, err
	}
	if clean, err = cleanPath(name, root); err != nil {
		return nil, "", nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.closed != nil {
		return nil, "", nil, s.openLocked()
	}
	s.files++
	s.armLocked()
	return s, clean, sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		s.files--
		s.usedLocked()
		s.armLocked()
	}), nil
}

// ListFiles implements executor.SessionFiles.
func (e *Engine) ListFiles(ctx context.Context, id, name string, recursive bool) ([]executor.File, error) {
	s, clean, done, err := e.withFiles(ctx, id, name, true, executor.ScopeRead)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := inSession(ctx, e, s, "list the files of "+id, e.deadlines.Stop, func(ctx context.Context, b executor.SessionBackend) ([]executor.File, error) {
		return b.ListFiles(ctx, id, clean, recursive)
	})
	if err != nil {
		return nil, e.sessionError(s, "list files", err)
	}
	return list, nil
}

// opened is a file that a backend has opened.
type opened struct {
	file   executor.File
	reader io.ReadCloser
}

// ReadFile implements executor.SessionFiles. The reader ends with ctx.
func (e *Engine) ReadFile(ctx context.Context, id, name string) (executor.File, io.ReadCloser, error) {
	s, clean, done, err := e.withFiles(ctx, id, name, false, executor.ScopeRead)
	if err != nil {
		return executor.File{}, nil, err
	}
	// The reader lives longer than the call that opens it, so its ctx does, too.
	work, stop := context.WithCancelCause(ctx)
	end := func() {
		stop(nil)
		done()
	}
	got, err := inSession(ctx, e, s, "read a file of "+id, e.deadlines.Stop, func(_ context.Context, b executor.SessionBackend) (opened, error) {
		file, reader, err := b.ReadFile(work, id, clean)
		return opened{file, reader}, err
	})
	if err != nil {
		end()
		return executor.File{}, nil, e.sessionError(s, "read a file", err)
	}
	return got.file, &fileReader{got.reader, end}, nil
}

// fileReader ends its file operation when it is closed.
type fileReader struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (r *fileReader) Close() error {
	defer r.end()
	return r.ReadCloser.Close()
}

// WriteFile implements executor.SessionFiles. It reads no more than the server's maximum for one file; r must not be read
// by anybody else before it ends, which is when WriteFile has returned and r's own Read, too.
func (e *Engine) WriteFile(ctx context.Context, id, name string, size int64, r io.Reader) (executor.File, error) {
	s, clean, done, err := e.withFiles(ctx, id, name, false, executor.ScopeExec)
	if err != nil {
		return executor.File{}, err
	}
	defer done()
	if most := e.rules.fileBytes; most > 0 {
		if size > most {
			return executor.File{}, errTooLarge("file", most)
		}
		r = &boundedReader{r: r, left: most, most: most}
	}
	// A second attempt is possible as long as nothing was read.
	read := &firstRead{r: r}
	file, err := inSession(ctx, e, s, "write a file of "+id, e.deadlines.Upload, func(ctx context.Context, b executor.SessionBackend) (executor.File, error) {
		if read.begun() {
			return executor.File{}, executor.Errorf(executor.Unavailable, "the backend lost the session while the file was written")
		}
		return b.WriteFile(ctx, id, clean, size, read)
	})
	if err != nil {
		return executor.File{}, e.sessionError(s, "write a file", err)
	}
	return file, nil
}

// boundedReader fails where more than most bytes come.
type boundedReader struct {
	r          io.Reader
	left, most int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge("file", b.most)
	}
	return n, err
}

// firstRead knows whether anything was read.
type firstRead struct {
	r  io.Reader
	mu sync.Mutex
	on bool
}

// Read implements io.Reader.
func (f *firstRead) Read(p []byte) (int, error) {
	f.mu.Lock()
	f.on = true
	f.mu.Unlock()
	return f.r.Read(p)
}

func (f *firstRead) begun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on
}

// RemoveFile implements executor.SessionFiles.
func (e *Engine) RemoveFile(ctx context.Context, id, name string) error {
	s, clean, done, err := e.withFiles(ctx, id, name, false, executor.ScopeExec)
	if err != nil {
		return err
	}
	defer done()
	_, err = inSession(ctx, e, s, "remove a file of "+id, e.deadlines.Stop, func(ctx context.Context, b executor.SessionBackend) (struct{}, error) {
		return struct{}{}, b.RemoveFile(ctx, id, clean)
	})
	if err != nil {
		return e.sessionError(s, "remove a file", err)
	}
	return nil
}
