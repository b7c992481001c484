package pyexec

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/sdk/go/pack"
)

// RunFolder is Run with the files of the folder dir. What is sent is the rule of pack.Folder. Without an entrypoint, code or command in
// spec, the entrypoint is that of pack.Entrypoint. Without RequirementsTxt and Detect in spec, the server takes the requirements from
// the files.
func (c *Client) RunFolder(ctx context.Context, dir string, spec Spec) (*Execution, error) {
	spec, tar, err := folder(ctx, dir, spec)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tar.Close() }() // only read
	return c.Run(ctx, spec, Input{Tar: tar})
}

// SubmitFolder is Submit with the files of the folder dir, by the rules of RunFolder.
func (c *Client) SubmitFolder(ctx context.Context, dir string, spec Spec) (string, error) {
	spec, tar, err := folder(ctx, dir, spec)
	if err != nil {
		return "", err
	}
	defer func() { _ = tar.Close() }() // only read
	return c.Submit(ctx, spec, Input{Tar: tar})
}

func folder(ctx context.Context, dir string, spec Spec) (Spec, *pack.Reader, error) {
	archive, err := pack.Folder(ctx, dir, pack.Options{})
	if err != nil {
		return spec, nil, &Error{Code: CodeInvalid, Message: err.Error(), Err: err}
	}
	if spec.Entrypoint == "" && spec.Code == "" && len(spec.Command) == 0 {
		if spec.Entrypoint, _ = pack.Entrypoint(archive.Regular()); spec.Entrypoint == "" {
			return spec, nil, &Error{Code: CodeInvalid, Message: "entrypoint: must be given, because there is no .py file in " + dir}
		}
	}
	if spec.Detect == nil && spec.RequirementsTxt == "" {
		spec.Detect = new(true)
	}
	return spec, archive.Open(), nil
}

// SaveArtifacts writes the artifacts of an Execution below dir and returns their names. It writes nothing outside of dir (see
// pack.Extract).
func (c *Client) SaveArtifacts(ctx context.Context, id, dir string) ([]string, error) {
	tar, err := c.Artifacts(ctx, id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tar.Close() }() // only read
	return pack.Extract(tar, dir, nil)
}

// UploadProgress returns a reader of r for Input or UploadFile that calls hook as it is read, with the bytes that were read and the
// size of r; -1: unknown. When a call is repeated, the count begins again.
func UploadProgress(r io.Reader, hook func(sent, total int64)) io.Reader {
	p := streamPart(r)
	counted := &countedReader{reader: r, total: p.size, hook: hook}
	if p.start < 0 {
		return counted
	}
	return &countedSeeker{countedReader: counted, seeker: r.(io.Seeker), start: p.start}
}

type countedReader struct {
	reader      io.Reader
	sent, total int64
	hook        func(sent, total int64)
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	c.sent += int64(n)
	if n > 0 {
		c.hook(c.sent, c.total)
	}
	return n, err
}

// Len returns the number of bytes that are left, for a Content-Length.
func (c *countedReader) Len() int { return int(c.total - c.sent) }

type countedSeeker struct {
	*countedReader
	seeker io.Seeker
	start  int64
}

// Seek implements io.Seeker.
func (c *countedSeeker) Seek(offset int64, whence int) (int64, error) {
	at, err := c.seeker.Seek(offset, whence)
	if err == nil {
		c.sent = at - c.start
	}
	return at, err
}
