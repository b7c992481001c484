package pyexec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"sync/atomic"
)

// upload is the body of a submission. Without a stream it is JSON, otherwise multipart. In multipart the metadata comes first, so
// that the server can stream the tar to the sandbox; then come tar and stdin.
type upload struct {
	contentType string
	parts       []part
	// folder is the tar of Input.Folder, which the client has opened; nil: none.
	folder io.Closer
	// touched reports whether a stream of the caller was read.
	touched atomic.Bool
}

// part is a piece of the body: bytes, or a stream of the caller.
type part struct {
	data   []byte
	stream io.Reader
	// start is the offset of an io.Seeker, and size the number of bytes that follow. -1: unknown.
	start, size int64
}

// newUpload returns the upload of a Spec or a Batch. stdin is that of the Spec.
func newUpload(what any, stdin string, in Input) (*upload, error) {
	if stdin != "" && in.Stdin != nil {
		return nil, invalidField("stdin", "must be in the Spec or in the Input, not in both")
	}
	metadata, err := marshal(what)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("encode the metadata: %v", err), Err: err}
	}
	if in.Tar == nil && in.Stdin == nil {
		return &upload{contentType: "application/json", parts: []part{{data: metadata}}}, nil
	}
	u := &upload{}
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	u.contentType = form.FormDataContentType()
	w, err := form.CreatePart(partHeader(`form-data; name="metadata"`, "application/json"))
	if err == nil {
		_, err = w.Write(metadata)
	}
	for _, s := range []struct {
		stream                 io.Reader
		disposition, mediaType string
	}{
		{in.Tar, `form-data; name="tar"; filename="workspace.tar"`, "application/x-tar"},
		{in.Stdin, `form-data; name="stdin"; filename="stdin"`, "application/octet-stream"},
	} {
		if s.stream == nil || err != nil {
			continue
		}
		_, err = form.CreatePart(partHeader(s.disposition, s.mediaType))
		u.parts = append(u.parts, part{data: bytes.Clone(head.Bytes())}, streamPart(s.stream))
		head.Reset()
	}
	if err = errors.Join(err, form.Close()); err != nil { // writing to memory does not fail
		return nil, &Error{Code: CodeInternal, Message: err.Error(), Err: err}
	}
	u.parts = append(u.parts, part{data: head.Bytes()})
	return u, nil
}

func partHeader(disposition, mediaType string) textproto.MIMEHeader {
	return textproto.MIMEHeader{"Content-Disposition": {disposition}, "Content-Type": {mediaType}}
}

// streamPart returns the part of r, with its size if r tells it.
func streamPart(r io.Reader) part {
	p := part{stream: r, start: -1, size: -1}
	if s, ok := r.(io.Seeker); ok {
		start, err := s.Seek(0, io.SeekCurrent)
		if err != nil { // a pipe that looks like a file
			return p
		}
		end, err := s.Seek(0, io.SeekEnd)
		if _, backErr := s.Seek(start, io.SeekStart); err == nil && backErr == nil && end >= start {
			p.start, p.size = start, end-start
		}
		return p
	}
	if l, ok := r.(interface{ Len() int }); ok { // bytes.Buffer
		p.size = int64(l.Len())
	}
	return p
}

// attach makes u the body of req, from its beginning.
func (u *upload) attach(req *http.Request) {
	body := &uploadBody{}
	readers := make([]io.Reader, len(u.parts))
	length := int64(0)
	for i, p := range u.parts {
		switch {
		case p.stream == nil:
			readers[i] = bytes.NewReader(p.data)
			p.size = int64(len(p.data))
		case p.size >= 0: // a file that grows meanwhile must not make the body longer than announced
			readers[i] = &touching{u, io.LimitReader(p.stream, p.size)}
		default:
			readers[i] = &touching{u, p.stream}
		}
		if length >= 0 && p.size >= 0 {
			length += p.size
		} else {
			length = -1
		}
	}
	body.reader = io.MultiReader(readers...)
	req.Body, req.ContentLength = body, length
	req.Header.Set("Content-Type", u.contentType)
	if u.streams() {
		// A server that is full or wants a token answers before a byte of a large upload is sent.
		req.Header.Set("Expect", "100-continue")
	}
}

// streams reports whether the body has a stream of the caller.
func (u *upload) streams() bool {
	return slices.ContainsFunc(u.parts, func(p part) bool { return p.stream != nil })
}

// jsonUpload returns the upload of a JSON body.
func jsonUpload(v any) (*upload, error) {
	raw, err := marshal(v)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("encode the request: %v", err), Err: err}
	}
	return &upload{contentType: "application/json", parts: []part{{data: raw}}}, nil
}

// rewind prepares the body to be sent again. It reports false if that is not possible.
func (u *upload) rewind() bool {
	if !u.touched.Load() {
		return true
	}
	for _, p := range u.parts {
		if p.stream == nil {
			continue
		}
		s, ok := p.stream.(io.Seeker)
		if !ok || p.start < 0 {
			return false
		}
		if _, err := s.Seek(p.start, io.SeekStart); err != nil {
			return false
		}
	}
	return true
}

// touching records that a stream of the caller was read.
type touching struct {
	upload *upload
	reader io.Reader
}

func (t *touching) Read(p []byte) (int, error) {
	t.upload.touched.Store(true)
	return t.reader.Read(p)
}

// uploadBody is the body that the transport reads. After an early answer the transport may still read for a moment. A Read under
// way then ends by itself, and no other follows.
type uploadBody struct {
	reader io.Reader
	closed atomic.Bool
}

func (b *uploadBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	return b.reader.Read(p)
}

func (b *uploadBody) Close() error {
	b.closed.Store(true)
	return nil
}
