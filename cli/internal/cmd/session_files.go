package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/frontends/http/apijson"
)

func newSessionFiles(g *global) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use: "files ID [PATH]", Short: "List a session's files",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return exactly(1, "the id of a session, and perhaps a path")(cmd, nil)
			}
			return nil
		},
		RunE: listing(g, "session files", tabwriter.AlignRight, func(ctx context.Context, svc executor.Service, args []string) ([]executor.File, error) {
			folder := ""
			if len(args) == 2 {
				folder = strings.TrimSuffix(args[1], "/")
			}
			return svc.ListFiles(ctx, args[0], folder, recursive)
		}, apijson.FilesOf, func(t io.Writer, list []executor.File) {
			for _, f := range list {
				name := inCell(f.Path)
				mode := fs.FileMode(f.Mode & 0o777)
				if f.Directory {
					name += "/"
					mode |= fs.ModeDir
				}
				// The last cell has no tab behind it, and so stands left.
				fmt.Fprintf(t, "%s\t%d\t%s\t  %s\n", mode, f.SizeBytes, f.ModTime.Local().Format(time.DateTime), name)
			}
		}),
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "all below it too")
	return cmd
}

// sessionCopyOptions has the flags and arguments of `session cp`.
type sessionCopyOptions struct {
	g                   *global
	source, destination place
	recursive           bool
}

// place is the source or the destination of a copy: a local path, or a path in a session.
type place struct {
	// session is the id or the name of the session; empty for a local path.
	session string
	path    string
}

// placeOf reads ID:PATH and NAME:PATH. A text with a slash before the colon, a letter of a drive and an existing file are local paths.
func placeOf(arg string) place {
	session, inside, ok := strings.Cut(arg, ":")
	if !ok || session == "" || runtime.GOOS == "windows" && len(session) == 1 || strings.ContainsAny(session, `/\`) {
		return place{path: arg}
	}
	if _, err := os.Lstat(arg); err == nil && !strings.HasPrefix(session, "ctx-") {
		return place{path: arg}
	}
	return place{session, inside}
}

func newSessionCopy(g *global) *cobra.Command {
	o := &sessionCopyOptions{g: g}
	cmd := &cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy files into or out of a session",
		Long: `Copy a file, or with -r a folder, into or out of a session. One argument is ID:PATH or NAME:PATH, the other a local path, or
- for standard input or output. If the destination is a folder or ends with a slash, the source keeps its name there. Files keep
their permission bits, out of a session as far as the umask leaves them, and empty folders are copied. An existing file is replaced
completely or not at all.`,
		Example: "  python-executor session cp data.csv ctx-…:data/\n  python-executor session cp ctx-…:plot.png .\n  tar c src | python-executor session cp - ctx-…:src.tar",
		Args:    exactly(2, "a source and a destination, one of them ID:PATH of a session"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.source, o.destination = placeOf(args[0]), placeOf(args[1])
			for _, arg := range args {
				if strings.Contains(arg, "://") {
					return fmt.Errorf("%s: must be a local path or ID:PATH, because cp fetches no URL: curl -fsSL URL | python-executor session cp - ID:PATH", arg)
				}
			}
			switch {
			case o.source.session != "" && o.destination.session != "":
				return fmt.Errorf("%s and %s are both in a session: one must be a local path (a local name with a colon begins with ./)", args[0], args[1])
			case o.source.session == "" && o.destination.session == "":
				return fmt.Errorf("%s and %s are both local paths: one must be ID:PATH or NAME:PATH of a session", args[0], args[1])
			case o.source.path == "" || o.destination.session == "" && o.destination.path == "":
				return errors.New("a path must not be empty")
			case o.recursive && (o.source.path == "-" && o.source.session == "" || o.destination.path == "-" && o.destination.session == ""):
				return errors.New("-r: must not be given with -, which is one file")
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "r", false, "a folder with all that is in it")
	return cmd
}

func (o *sessionCopyOptions) run(ctx context.Context) error {
	svc, err := o.g.openServer("session cp")
	if err != nil {
		return err
	}
	var copied []executor.File
	note := func(f executor.File) { copied = append(copied, f) }
	if o.destination.session != "" {
		err = o.upload(ctx, svc, note)
	} else {
		err = o.download(ctx, svc, note)
	}
	if o.g.json && err == nil && (o.destination.session != "" || o.destination.path != "-") {
		return printJSON(o.g.Out, apijson.FilesOf(copied))
	}
	return err
}

// upload copies into a session.
func (o *sessionCopyOptions) upload(ctx context.Context, svc executor.Service, note func(executor.File)) error {
	id, target := o.destination.session, o.destination.path
	if o.source.path == "-" {
		if target == "" || strings.HasSuffix(target, "/") {
			return errors.New("the destination must have a file name, because standard input has none")
		}
		f, err := svc.WriteFile(ctx, id, executor.File{Path: path.Clean(target), SizeBytes: -1}, o.g.In)
		note(f)
		return err
	}
	info, err := os.Stat(o.source.path)
	if err != nil {
		return err
	}
	if target == "" || strings.HasSuffix(target, "/") || target == "." {
		absolute, err := filepath.Abs(o.source.path)
		if err != nil {
			return err
		}
		target = path.Join(target, filepath.Base(absolute))
	}
	target = path.Clean(target)
	if !info.IsDir() {
		return o.uploadFile(ctx, svc, o.source.path, target, note)
	}
	if !o.recursive {
		return fmt.Errorf("the source must be a file, unless -r is given (%s is a folder)", o.source.path)
	}
	return filepath.WalkDir(o.source.path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(o.source.path, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return o.uploadFolder(ctx, svc, name, path.Join(target, filepath.ToSlash(relative)), note)
		}
		if !entry.Type().IsRegular() {
			o.g.note("%s is left out: not a regular file", name)
			return nil
		}
		return o.uploadFile(ctx, svc, name, path.Join(target, filepath.ToSlash(relative)), note)
	})
}

// uploadFolder makes a folder that would be missing without files in it.
func (o *sessionCopyOptions) uploadFolder(ctx context.Context, svc executor.Service, name, target string, note func(executor.File)) error {
	entries, err := os.ReadDir(name)
	if err != nil || len(entries) > 0 || target == "." {
		return err
	}
	made, err := svc.WriteFile(ctx, o.destination.session, executor.File{Path: target, Directory: true}, nil)
	if err != nil {
		return naming(name, err)
	}
	note(made)
	return nil
}

func (o *sessionCopyOptions) uploadFile(ctx context.Context, svc executor.Service, name, target string, note func(executor.File)) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	to := executor.File{Path: target, SizeBytes: -1}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		to.SizeBytes = info.Size()
		if runtime.GOOS != "windows" { // which has no permission bits
			to.Mode = uint32(info.Mode().Perm())
		}
	}
	written, err := svc.WriteFile(ctx, o.destination.session, to, f)
	if err != nil {
		return naming(name, err)
	}
	note(written)
	return nil
}

// download copies out of a session.
func (o *sessionCopyOptions) download(ctx context.Context, svc executor.Service, note func(executor.File)) error {
	source, target := path.Clean(o.source.path), o.destination.path
	if target == "-" {
		_, r, err := svc.ReadFile(ctx, o.source.session, source)
		if err != nil {
			return err
		}
		defer r.Close()
		return copyOut(o.g.Out, r)
	}
	if info, err := os.Stat(target); err == nil && info.IsDir() || strings.HasSuffix(target, "/") || strings.HasSuffix(target, string(filepath.Separator)) {
		name := path.Base(source)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the destination must have a file name, because %q cannot be the name of a local file", name)
		}
		if name != "." { // the work folder itself has no name
			target = filepath.Join(target, name)
		}
	}
	if !o.recursive {
		return o.downloadFile(ctx, svc, source, filepath.Dir(target), filepath.Base(target), note)
	}
	list, err := svc.ListFiles(ctx, o.source.session, source, true)
	if err != nil {
		return err
	}
	for _, f := range list {
		relative := f.Path
		if source != "." {
			var inside bool
			if relative, inside = strings.CutPrefix(f.Path, source+"/"); !inside {
				return fmt.Errorf("the server must list only files below %[2]q (got %[1]q)", f.Path, source)
			}
		}
		if f.Directory {
			err = makeFolder(target, filepath.FromSlash(relative))
		} else {
			err = o.downloadFile(ctx, svc, f.Path, target, filepath.FromSlash(relative), note)
		}
		if err != nil {
			return err
		}
	}
	if len(list) == 0 {
		return os.MkdirAll(target, 0o777) //nolint:gosec // the user's folder, by the user's umask
	}
	return nil
}

// makeFolder makes the folder name below dir. It makes nothing outside dir, even if dir contains a link.
func makeFolder(dir, name string) error {
	root, err := openTarget(dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a folder: nothing is buffered
	return root.MkdirAll(name, 0o777)
}

// openTarget opens dir, which it makes if it is missing, for a path below it that somebody else has chosen.
func openTarget(dir, name string) (*os.Root, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("the name must be a path inside the folder (got %q)", name)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // the user's folder, by the user's umask
		return nil, err
	}
	return os.OpenRoot(dir)
}

// downloadFile makes or replaces the file name below dir. A program chose the name, so downloadFile writes nothing outside dir,
// even if dir contains a link.
func (o *sessionCopyOptions) downloadFile(ctx context.Context, svc executor.Service, source, dir, name string, note func(executor.File)) error {
	f, r, err := svc.ReadFile(ctx, o.source.session, source)
	if err != nil {
		return naming(source, err)
	}
	defer r.Close()
	root, err := openTarget(dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a folder: nothing is buffered
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	if err := replaceFile(root, name, fs.FileMode(f.Mode), r); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
	}
	note(f)
	return nil
}

// replaceFile writes a file completely or not at all. It has the permission bits of mode that the user's umask leaves; mode 0 is that of
// a server that does not tell it.
func replaceFile(root *os.Root, name string, mode fs.FileMode, r io.Reader) error {
	temporary := fmt.Sprintf("%s.part-%d", name, os.Getpid())
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, cmp.Or(mode.Perm(), 0o666))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}

// copyOut writes to standard output.
func copyOut(w io.Writer, r io.Reader) error {
	buffer := make([]byte, 128<<10)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return outputFailure(err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
