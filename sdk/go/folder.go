package pyexec

import (
	"context"
	"io"

	"github.com/python-executor/python-executor/sdk/go/pack"
)

// complete returns spec and in with the tar of in.Folder in place of the folder. The requirements of a tar are left to the server, unless
// spec says otherwise.
func (in Input) complete(ctx context.Context, spec Spec) (Spec, Input, error) {
	if in.Folder != "" {
		var err error
		if spec, in, err = in.withFolder(ctx, spec); err != nil {
			return spec, in, err
		}
	}
	if in.Tar != nil && spec.Detect == nil && spec.RequirementsTxt == "" && spec.SessionID == "" {
		spec.Detect = new(true)
	}
	return spec, in, nil
}

func (in Input) withFolder(ctx context.Context, spec Spec) (Spec, Input, error) {
	if in.Tar != nil {
		return spec, in, invalidField("folder", "must not be given together with a tar")
	}
	archive, err := pack.Folder(ctx, in.Folder, in.Pack)
	if err != nil {
		e := invalidField("folder", err.Error())
		e.Err = err
		return spec, in, e
	}
	if spec.Entrypoint == "" && spec.Code == "" && len(spec.Command) == 0 {
		if spec.Entrypoint, _ = pack.Entrypoint(archive.Regular()); spec.Entrypoint == "" {
			return spec, in, invalidField("entrypoint", "must be given, because there is no .py file in "+in.Folder)
		}
	}
	in.Tar = archive.Open()
	return spec, in, nil
}

func invalidField(field, message string) *Error {
	return &Error{Code: CodeInvalid, Message: field + ": " + message, Fields: []FieldError{{Field: field, Message: message}}}
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
