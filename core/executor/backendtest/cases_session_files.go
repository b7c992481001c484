package backendtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/awaittest"
)

func sessionFileRules() []rule {
	return []rule{
		{"SE-30", "files are written, read, listed and removed, also while code runs, and are the program's", sessionFiles},
		{"SE-31", "no path leads out of the work folder, neither by .. nor by a link, and only regular files are read", sessionFilesConfined},
		{"SE-32", "a file is written whole or not at all", sessionFilesWhole},
		{"SE-33", "a file beyond the disk limit is exhausted, and leaves nothing", sessionFilesCapped},
		{"SE-35", "a file has the permission bits that it is written with, and a folder may be empty", sessionFileModes},
		{"SE-34", "an upload under way is no file: it is neither listed nor read", sessionFilesUnderWay},
	}
}

// write, read, list and remove call the methods of SessionFiles and return their errors.
func (o *opened) write(path string, size int64, r io.Reader) (f executor.File, err error) {
	err = tried(o.c, "WriteFile", func(ctx context.Context) error {
		f, err = o.tools().WriteFile(ctx, o.session.ID, executor.File{Path: path, SizeBytes: size}, r)
		return err
	})
	return f, err
}

func (o *opened) read(path string) (f executor.File, data []byte, err error) {
	err = tried(o.c, "ReadFile", func(ctx context.Context) error {
		var r io.ReadCloser
		if f, r, err = o.tools().ReadFile(ctx, o.session.ID, path); err != nil {
			return err
		}
		data, err = io.ReadAll(r)
		return errors.Join(err, r.Close())
	})
	return f, data, err
}

func (o *opened) list(path string, recursive bool) (list []executor.File) {
	within(o.c, "ListFiles", func(ctx context.Context) (err error) {
		list, err = o.tools().ListFiles(ctx, o.session.ID, path, recursive)
		return err
	})
	return list
}

func (o *opened) remove(path string) error {
	return tried(o.c, "RemoveFile", func(ctx context.Context) error { return o.tools().RemoveFile(ctx, o.session.ID, path) })
}

// paths returns the paths below path that are not hidden.
func (o *opened) paths(path string, recursive bool) []string {
	var list []string
	for _, f := range o.list(path, recursive) {
		if !strings.HasPrefix(f.Path, ".") {
			list = append(list, f.Path)
		}
	}
	return list
}

// listed returns all paths, also hidden ones.
func (o *opened) listed() []string {
	var list []string
	for _, f := range o.list("", true) {
		list = append(list, f.Path)
	}
	return list
}

// contains ends the case unless the file at path has exactly that text.
func (o *opened) contains(path, text string) {
	f, data, err := o.read(path)
	if err != nil {
		o.c.Fatalf("ReadFile %s: %v", path, err)
	}
	if string(data) != text || f.SizeBytes != int64(len(text)) || f.Directory || f.Path != path {
		o.c.Fatalf("%s is %q and described as %+v", path, clip(string(data)), f)
	}
}

// sessionFileModes writes a script that can be executed, and an empty folder.
func sessionFileModes(c *Case) {
	o := c.open()
	write := func(f executor.File, text string) (got executor.File, err error) {
		err = tried(c, "WriteFile", func(ctx context.Context) error {
			got, err = o.tools().WriteFile(ctx, o.session.ID, f, strings.NewReader(text))
			return err
		})
		return got, err
	}
	const text = "#!/bin/sh\necho ran\n"
	for _, mode := range []uint32{0o755, 0o600, 0o711} { // the file is replaced, and so is its mode
		if f, err := write(executor.File{Path: "bin/tool", SizeBytes: int64(len(text)), Mode: mode}, text); err != nil || f.Mode != mode {
			c.Errorf("written with %#o: %+v, %v", mode, f, err)
		}
		if f, _, err := o.read("bin/tool"); err != nil || f.Mode != mode {
			c.Errorf("read, and written with %#o: %+v, %v", mode, f, err)
		}
	}
	if f, err := write(executor.File{Path: "plain", SizeBytes: 1}, "x"); err != nil || f.Mode != 0o644 {
		c.Errorf("without a mode: %+v, %v", f, err)
	}
	for range 2 {
		if f, err := write(executor.File{Path: "a/empty", Directory: true}, ""); err != nil || !f.Directory || f.Path != "a/empty" {
			c.Errorf("a folder: %+v, %v", f, err)
		}
	}
	if got, want := o.paths("", true), []string{"a", "a/empty", "bin", "bin/tool", "plain"}; !slices.Equal(got, want) {
		c.Errorf("the session has %q, want %q", got, want)
	}
	if got := o.paths("a/empty", false); len(got) != 0 {
		c.Errorf("the empty folder has %q", got)
	}
	for _, f := range []executor.File{{Path: "plain", Directory: true}, {Path: "plain/below", Directory: true}, {Path: "a/empty"}} {
		if got, err := write(f, ""); executor.CodeOf(err) != executor.Invalid {
			c.Errorf("%+v: %+v, %v", f, got, err)
		}
	}
	if _, err := write(executor.File{Path: "a/empty/file", SizeBytes: -1}, "x"); err != nil {
		c.Errorf("a file in the empty folder: %v", err)
	}
	o.says(Program{Python: "import os\nprint(os.access('bin/tool', os.X_OK), os.access('plain', os.X_OK))\n", Fake: "print \"True False\""}, "True False\n")
}

func sessionFiles(c *Case) {
	o := c.open()
	busy := o.start(o.job(upAndHang))
	busy.says("up\n")
	binary := string(bytes.Repeat([]byte{0, 1, 0xff, '\n'}, 100_000))
	for path, text := range map[string]string{"a.txt": "first", "dir/sub/b.bin": binary, "empty": "", "\u00e4 \u4e16.txt": "name"} {
		size := int64(len(text))
		if path == "a.txt" {
			size = -1
		}
		f, err := o.write(path, size, strings.NewReader(text))
		if err != nil || f.Path != path || f.SizeBytes != int64(len(text)) {
			c.Fatalf("WriteFile %s: %+v, %v", path, f, err)
		}
		o.contains(path, text)
	}
	if f, err := o.write("a.txt", 6, strings.NewReader("second")); err != nil || f.SizeBytes != 6 {
		c.Fatalf("WriteFile again: %+v, %v", f, err)
	}
	if got, want := o.paths("", false), []string{"a.txt", "dir", "empty", "\u00e4 \u4e16.txt"}; !slices.Equal(got, want) {
		c.Errorf("the root holds %q, want %q", got, want)
	}
	if got, want := o.paths("dir", true), []string{"dir/sub", "dir/sub/b.bin"}; !slices.Equal(got, want) {
		c.Errorf("below dir lie %q, want %q", got, want)
	}
	for _, f := range o.list("dir", true) {
		if f.Directory != (f.Path == "dir/sub") {
			c.Errorf("listed %+v", f)
		}
	}
	busy.cancel(errCancelled)
	busy.wait()
	o.says(Program{
		Python: "print(open('a.txt').read(), len(open('dir/sub/b.bin', 'rb').read()))\nwith open('a.txt', 'a') as f: f.write('!')\n",
		Fake:   "cat a.txt\nprint \" 400000\"\nwrite-file a.txt second!",
	}, "second 400000\n")
	o.contains("a.txt", "second!")
	for _, path := range []string{"a.txt", "dir"} {
		if err := o.remove(path); err != nil {
			c.Errorf("RemoveFile %s: %v", path, err)
		}
		if err := o.remove(path); executor.CodeOf(err) != executor.NotFound {
			c.Errorf("RemoveFile %s again: %v, want code not_found", path, err)
		}
	}
	for _, path := range []string{"a.txt", "dir/sub/b.bin", "no/such/file"} {
		if _, _, err := o.read(path); executor.CodeOf(err) != executor.NotFound {
			c.Errorf("ReadFile %s: %v, want code not_found", path, err)
		}
	}
	if _, _, err := o.read("no-such-file"); !names(err, "path") {
		c.Errorf("a path that is not there: %v, want an error that names path, or it reads as a Session that is not there", err)
	}
}

func sessionFilesConfined(c *Case) {
	o := c.open()
	o.run(Program{
		Python: "import os\nos.symlink('/etc/passwd', 'out')\nos.symlink('/', 'root')\nos.symlink('..', 'up')\nos.mkfifo('pipe')\nos.mkdir('folder')\n",
		Fake:   "symlink /etc/passwd out\nsymlink / root\nsymlink .. up\nmkfifo pipe\nwrite-file folder/x y",
	}).succeeded()
	const text = "evil"
	for _, path := range []string{
		"../evil", "a/../../evil", "..", "/etc/passwd", "/evil", "root/etc/passwd", "up/evil", "root/tmp/pyexec-law-evil", "out", "folder/../../evil", "a\x00b",
	} {
		if f, data, err := o.read(path); executor.CodeOf(err) != executor.Invalid {
			c.Errorf("ReadFile %q: %+v, %q, %v, want code invalid", path, f, clip(string(data)), err)
		}
		f, err := o.write(path, int64(len(text)), strings.NewReader(text))
		switch {
		case err == nil && path == "out":
			o.contains(path, text) // the file has replaced the link
		case executor.CodeOf(err) != executor.Invalid:
			c.Errorf("WriteFile %q: %+v, %v, want code invalid", path, f, err)
		}
	}
	for _, path := range []string{"..", "/", "/etc", "root", "root/etc", "up"} {
		err := tried(c, "ListFiles", func(ctx context.Context) error {
			_, err := o.tools().ListFiles(ctx, o.session.ID, path, false)
			return err
		})
		if executor.CodeOf(err) != executor.Invalid {
			c.Errorf("ListFiles %q: %v, want code invalid", path, err)
		}
	}
	for _, path := range []string{"..", "../evil", "/etc/passwd", "root/etc/passwd", "up/evil", "", "."} {
		if err := o.remove(path); executor.CodeOf(err) != executor.Invalid {
			c.Errorf("RemoveFile %q: %v, want code invalid", path, err)
		}
	}
	for _, path := range []string{"pipe", "folder"} {
		if _, _, err := o.read(path); executor.CodeOf(err) != executor.Invalid {
			c.Errorf("ReadFile of a %s: %v, want code invalid", path, err)
		}
		if _, err := o.write(path, int64(len(text)), strings.NewReader(text)); executor.CodeOf(err) != executor.Invalid {
			c.Errorf("WriteFile of a %s: %v, want code invalid", path, err)
		}
	}
	// A link is listed and removed, but never followed.
	for _, f := range o.list("", true) {
		if strings.HasPrefix(f.Path, "root/") || strings.HasPrefix(f.Path, "up/") {
			c.Fatalf("the list follows links: %s", f.Path)
		}
	}
	for _, path := range []string{"out", "root", "up", "pipe", "folder"} {
		if err := o.remove(path); err != nil {
			c.Errorf("RemoveFile %s: %v", path, err)
		}
	}
	if left := o.paths("", true); len(left) > 0 {
		c.Errorf("left: %q", left)
	}
}

func sessionFilesWhole(c *Case) {
	o := c.open()
	if _, err := o.write("a.txt", -1, strings.NewReader("before")); err != nil {
		c.Fatalf("WriteFile: %v", err)
	}
	cut := errors.New("the upload was cut")
	for what, write := range map[string]func() error{
		"content that breaks off": func() error {
			_, err := o.write("a.txt", -1, breaking(bytes.Repeat([]byte("x"), 300_000), cut))
			return err
		},
		"less than was announced": func() error { _, err := o.write("a.txt", 100, strings.NewReader("short")); return err },
		"more than was announced": func() error { _, err := o.write("a.txt", 3, strings.NewReader("longer")); return err },
		"content that breaks off, of a new file": func() error {
			_, err := o.write("new.txt", 1000, breaking([]byte("x"), cut))
			return err
		},
	} {
		if err := write(); err == nil {
			c.Errorf("%s: no error", what)
		}
	}
	o.contains("a.txt", "before")
	if got := o.paths("", true); !slices.Equal(got, []string{"a.txt"}) {
		c.Errorf("the folder holds %q", got)
	}
}

// underWay is content whose second half comes when on is closed. asked is closed when the first half was taken.
type underWay struct {
	content   *bytes.Reader
	half      int
	asked, on chan struct{}
}

// Read implements io.Reader.
func (u *underWay) Read(p []byte) (int, error) {
	if left := u.content.Len() - u.half; left > 0 {
		return u.content.Read(p[:min(len(p), left)])
	}
	if u.asked != nil {
		close(u.asked)
		u.asked = nil
		<-u.on
	}
	return u.content.Read(p)
}

func sessionFilesUnderWay(c *Case) {
	o := c.open()
	if _, err := o.write("there/old.txt", -1, strings.NewReader("before")); err != nil {
		c.Fatalf("WriteFile: %v", err)
	}
	// The first half is larger than all that may hold it on the way.
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	for name, old := range map[string]bool{"new.bin": false, "there/new.bin": false, "there/old.txt": true} {
		for _, size := range []int64{int64(len(content)), -1} {
			before := o.listed()
			asked, on := make(chan struct{}), make(chan struct{})
			goOn := sync.OnceFunc(func() { close(on) })
			c.Cleanup(goOn)
			written := make(chan error, 1)
			go func() {
				_, err := o.write(name, size, &underWay{content: bytes.NewReader(content), half: len(content) / 2, asked: asked, on: on})
				written <- err
			}()
			awaittest.Closed(c, "the first half of an upload", asked)
			if got := o.listed(); !slices.Equal(got, before) {
				c.Errorf("while %s is under way the folder holds %q, and held %q", name, got, before)
			}
			if old {
				o.contains(name, "before")
			} else if _, _, err := o.read(name); executor.CodeOf(err) != executor.NotFound {
				c.Errorf("ReadFile %s while it is under way: %v, want code not_found", name, err)
			}
			goOn()
			if err := awaittest.Recv(c, "the end of an upload", written); err != nil {
				c.Errorf("WriteFile %s: %v", name, err)
			}
			o.contains(name, string(content))
			if old {
				if _, err := o.write(name, -1, strings.NewReader("before")); err != nil {
					c.Errorf("WriteFile %s: %v", name, err)
				}
			} else if err := o.remove(name); err != nil {
				c.Errorf("RemoveFile %s: %v", name, err)
			}
		}
	}
}

func sessionFilesCapped(c *Case) {
	c.need(c.caps().Sessions, "sessions")
	c.need(c.caps().Disk, "a disk limit")
	o := c.open(func(s *executor.Session) { s.Limits.DiskBytes = 16 << 20 })
	const fileBytes = 32 << 20
	for _, size := range []int64{-1, fileBytes} {
		if _, err := o.write("big.bin", size, io.LimitReader(zeros{}, fileBytes)); executor.CodeOf(err) != executor.Exhausted {
			c.Errorf("%d bytes, announced as %d, beyond a limit of %d: %v, want code exhausted", int64(fileBytes), size, o.session.Limits.DiskBytes, err)
		}
	}
	if got := o.paths("", true); len(got) > 0 {
		c.Errorf("the folder holds %q", got)
	}
	if _, err := o.write("small.txt", -1, strings.NewReader("fits")); err != nil {
		c.Errorf("WriteFile of a small one: %v", err)
	}
}

// zeros is a reader that never ends.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
