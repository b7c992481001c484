package input

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/python-executor/python-executor/core/executor"
	"github.com/python-executor/python-executor/core/executor/detect"
	"github.com/python-executor/python-executor/sdk/go/pack"
)

var errCompressed = errors.New("is compressed: must be an uncompressed .tar (decompress it first)")

// Method is the way in which the user has named the program.
type Method string

// The methods, in their order of precedence.
const (
	MethodNone   Method = ""
	MethodFiles  Method = "files"
	MethodTar    Method = "tar"
	MethodFolder Method = "folder"
	MethodFile   Method = "file"
	MethodPipe   Method = "pipe"
	MethodCode   Method = "code"
)

// Request has the flags and arguments about the input.
type Request struct {
	// Files are the values of --file.
	Files []string
	// Code is the value of -c; nil: it is not given.
	Code *string
	// Language is that of the code, and of a file whose name does not say it.
	Language executor.Language
	// Args are the arguments before "--".
	Args []string
	// Stdin is read as code if nothing else is named; nil: it must not be read (it is a terminal, or the program's input).
	Stdin io.Reader
	// Entrypoint is --entrypoint.
	Entrypoint string
	// Command reports whether the program is a command. It then needs neither input nor entrypoint.
	Command bool
	// IncludeAll is --include-all.
	IncludeAll bool
	// Leave is a folder that is not sent if it is inside the input folder, because it has the results of an earlier run; empty:
	// none.
	Leave string
	// Warn takes warnings for the user; nil drops them.
	Warn func(string)
}

// Input is a program that is ready to be sent.
type Input struct {
	Method Method
	// Workspace is the tar; nil with MethodNone.
	Workspace *executor.Source
	// Entrypoint is the one that the user has set, or the name of a single file that would not be detected; else empty.
	Entrypoint string
	// Language is set if the name of the entrypoint does not say it, but the user or the first line of the file does.
	Language executor.Language
	// Found is what was detected in the files.
	Found detect.Found
}

// Open makes the Workspace. Its errors name the file or flag that the user must correct.
func Open(ctx context.Context, r Request) (*Input, error) {
	if r.Warn == nil {
		r.Warn = func(string) {}
	}
	method, err := choose(r)
	if err != nil {
		return nil, err
	}
	in := &Input{Method: method, Entrypoint: r.Entrypoint, Language: r.Language}
	switch method {
	case MethodNone:
		return in, nil
	case MethodTar:
		err = in.openTar(r.Args[0])
	default:
		err = in.build(ctx, r)
	}
	if err == nil {
		err = in.look(r)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// Check returns the errors that can be found before anything is read or started.
func (r Request) Check() error {
	_, err := choose(r)
	return err
}

// choose selects the Method. It reads nothing except the kind of the argument's file.
func choose(r Request) (Method, error) {
	switch {
	case r.Code != nil && (len(r.Args) > 0 || len(r.Files) > 0 || r.Command || r.Entrypoint != ""):
		return MethodNone, errors.New("-c: must not be given with another input, --entrypoint or --command (the program's own arguments go after --)")
	case r.Code != nil && strings.TrimSpace(*r.Code) == "":
		return MethodNone, errors.New("-c: must not be empty")
	case r.Code != nil:
		return MethodCode, nil
	case len(r.Args) > 1:
		return MethodNone, fmt.Errorf("two inputs: %s and %s: name one (the program's own arguments go after --)", r.Args[0], r.Args[1])
	case len(r.Args) > 0 && len(r.Files) > 0:
		return MethodNone, fmt.Errorf("two inputs: %s and --file %s: name one", r.Args[0], r.Files[0])
	case len(r.Files) > 0:
		return MethodFiles, nil
	case len(r.Args) == 1 && r.Args[0] != "-":
		return chooseArgument(r.Args[0])
	case r.Stdin != nil && !r.Command:
		return MethodPipe, nil
	case r.Command && len(r.Args) == 0:
		return MethodNone, nil
	default:
		return MethodNone, errors.New("no input: name a folder, a .tar or a file, use -c CODE or --file, or pipe code in")
	}
}

func chooseArgument(name string) (Method, error) {
	if name == "" {
		return MethodNone, errors.New("the input's name must not be empty")
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) {
		return MethodNone, fmt.Errorf("%s: %s", clipped(name), absent(name))
	}
	if err != nil {
		return MethodNone, err
	}
	lower := strings.ToLower(filepath.Base(name))
	switch {
	case info.IsDir():
		return MethodFolder, nil
	case !info.Mode().IsRegular():
		return MethodNone, fmt.Errorf("%s: must be a regular file, a folder or a tar", name)
	case strings.HasSuffix(lower, ".tar"):
		return MethodTar, nil
	case slices.ContainsFunc(archives, func(suffix string) bool { return strings.HasSuffix(lower, suffix) }):
		return MethodNone, fmt.Errorf("%s %w", name, errCompressed)
	default:
		return MethodFile, nil
	}
}

var archives = []string{".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4", ".tar.z", ".zip", ".7z", ".rar"}

func (in *Input) openTar(name string) error {
	head, err := headOf(name)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if detect.Compressed(head) != "" {
		return fmt.Errorf("%s %w", name, errCompressed)
	}
	absolute, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	in.Workspace = &executor.Source{
		Open:      func() (io.ReadCloser, error) { return os.Open(absolute) },
		SizeBytes: info.Size(), Replayable: true, Path: absolute,
	}
	return nil
}

// build makes the tar of every other method.
func (in *Input) build(ctx context.Context, r Request) error {
	var a *pack.Archive
	var err error
	switch in.Method {
	case MethodFiles:
		if a, err = pack.Files(ctx, r.Files...); err != nil {
			err = fmt.Errorf("--file: %w", err)
		}
	case MethodFolder:
		a, err = pack.Folder(ctx, r.Args[0], pack.Options{All: r.IncludeAll, Leave: r.Leave, Warn: r.Warn})
		if errors.Is(err, pack.ErrLeftOut) {
			err = fmt.Errorf("%w: --include-all keeps it", err)
		}
	case MethodFile:
		a, err = in.file(ctx, r.Args[0])
	case MethodCode:
		a, err = in.text([]byte(*r.Code))
	default:
		a, err = in.pipe(ctx, r.Stdin)
	}
	if err != nil {
		return err
	}
	in.Workspace = &executor.Source{
		Open:      func() (io.ReadCloser, error) { return a.Open(), nil },
		SizeBytes: a.Size(), Replayable: true,
	}
	return nil
}

func (in *Input) file(ctx context.Context, name string) (*pack.Archive, error) {
	base := filepath.Base(name)
	// A zip application is a program. Other compressed files are refused.
	switch head, err := headOf(name); {
	case err != nil:
		return nil, err
	case detect.Compressed(head) != "" && !strings.HasSuffix(base, ".pyz"):
		return nil, fmt.Errorf("%s %w", name, errCompressed)
	case detect.IsTar(head):
		return nil, fmt.Errorf("%s is a tar, not code: rename it so that its name ends in .tar", name)
	}
	if in.Entrypoint == "" && !strings.HasSuffix(base, ".py") {
		in.Entrypoint = base
	}
	if head, err := headOf(name); err == nil && in.Language == executor.LanguageDefault && filepath.Ext(base) == "" {
		in.Language = languageOfLine(head)
	}
	return pack.File(ctx, name)
}

// languageOfLine returns the language that the first line of a file names (#!/bin/sh), LanguageDefault if it names none.
func languageOfLine(head []byte) executor.Language {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 || !strings.HasPrefix(words[0], "#!") {
		return executor.LanguageDefault
	}
	for _, word := range words {
		switch path.Base(strings.TrimPrefix(word, "#!")) {
		case "sh", "bash", "dash":
			return executor.LanguageShell
		case "node", "nodejs":
			return executor.LanguageJavaScript
		}
	}
	return executor.LanguageDefault
}

func headOf(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, detect.HeadBytes))
}

func (in *Input) pipe(ctx context.Context, stdin io.Reader) (*pack.Archive, error) {
	code, err := readAll(ctx, stdin)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("read code from standard input: %w", err)
	case len(bytes.TrimSpace(code)) == 0:
		return nil, errors.New("no input: standard input is empty, and nothing else is named")
	case detect.Compressed(code) != "":
		return nil, fmt.Errorf("standard input %w", errCompressed)
	case detect.IsTar(code):
		return nil, errors.New("standard input is a tar, not code: name it as an argument")
	}
	return in.text(code)
}

// text makes a program of code.
func (in *Input) text(code []byte) (*pack.Archive, error) {
	name := "main.py"
	switch in.Language {
	case executor.LanguageJavaScript:
		name = "main.js"
	case executor.LanguageShell:
		name = "main.sh"
	}
	if in.Entrypoint == "" && name != "main.py" {
		in.Entrypoint = name
	}
	return pack.Text(name, code)
}

// readAll reads r until its end or ctx's end. A read of a pipe cannot be cancelled, so the goroutine ends with the pipe, or with
// the process.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	type outcome struct {
		all []byte
		err error
	}
	read := make(chan outcome, 1)
	go func() {
		all, err := io.ReadAll(r)
		read <- outcome{all, err}
	}()
	select {
	case o := <-read:
		return o.all, o.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// look detects in the tar what the user has not set, and refuses an input that cannot run before it is sent.
func (in *Input) look(r Request) error {
	names, err := in.names()
	if err != nil {
		return fmt.Errorf("%s: not a tar: %w", r.what(), err)
	}
	ask := detect.Ask{Entrypoint: in.Entrypoint, NoEntrypoint: r.Command}
	if in.Entrypoint != "" && !r.Command {
		if _, there := names[path.Clean(filepath.ToSlash(in.Entrypoint))]; !there {
			return fmt.Errorf("--entrypoint %s: no such file in %s", in.Entrypoint, r.what())
		}
		in.Entrypoint = path.Clean(filepath.ToSlash(in.Entrypoint))
		ask.Entrypoint = in.Entrypoint
		if problem := detect.NotAProgram(in.Entrypoint); problem != "" {
			return fmt.Errorf("%s: %s", in.Entrypoint, problem)
		}
	}
	src, err := in.Workspace.Open()
	if err != nil {
		return err
	}
	defer src.Close()
	if in.Found, err = detect.Tar(src, ask); err != nil {
		if in.Method == MethodFile { // the input has the name of its only file
			if of, ok := errors.AsType[*detect.Error](err); ok {
				err = of.Err
			}
		}
		return fmt.Errorf("%s: %w", r.what(), err)
	}
	if in.Found.Entrypoint == "" && !r.Command {
		return fmt.Errorf("no .py file in %s: --entrypoint names the file that runs%s", r.what(), programsOf(names))
	}
	if in.Found.Guessed && !r.Command {
		r.Warn(fmt.Sprintf("%s runs: the first of several .py files in %s, none called main.py (--entrypoint names another)", in.Found.Entrypoint, r.what()))
	}
	return nil
}

// names lists the files and links of the archive. The runner decides whether a link can be run.
func (in *Input) names() (map[string]struct{}, error) {
	src, err := in.Workspace.Open()
	if err != nil {
		return nil, err
	}
	defer src.Close()
	names := map[string]struct{}{}
	for t := tar.NewReader(src); ; {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return names, nil
		case err != nil:
			return nil, err
		case h.Typeflag == tar.TypeReg, h.Typeflag == tar.TypeSymlink, h.Typeflag == tar.TypeLink:
			names[path.Clean(h.Name)] = struct{}{}
		}
	}
}

// what returns the name of the input for messages.
func (r Request) what() string {
	switch {
	case r.Code != nil:
		return "-c"
	case len(r.Files) > 0:
		return "the given files"
	case len(r.Args) > 0 && r.Args[0] != "-":
		return r.Args[0]
	default:
		return "standard input"
	}
}
