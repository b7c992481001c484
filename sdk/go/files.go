package pyexec

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// File is one entry of a Session's work folder.
type File struct {
	// Path is relative to the work folder, with slashes.
	Path      string `json:"path"`
	Directory bool   `json:"directory"`
	SizeBytes int64  `json:"size_bytes"`
	// Mode holds the permission bits.
	Mode    uint32    `json:"mode"`
	ModTime time.Time `json:"mod_time"`
}

// modeHeader carries the permission bits of a downloaded file, in octal.
const modeHeader = "X-File-Mode"

// ListFiles lists the folder at path ("" is the work folder), with recursive all below it. Codes: not_found, conflict
// (closed), invalid, exhausted (more than 10,000).
func (c *Client) ListFiles(ctx context.Context, id, path string, recursive bool) ([]File, error) {
	target, err := sessionPath(id, "/files")
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if path != "" {
		query.Set("path", path)
	}
	if recursive {
		query.Set("recursive", "true")
	}
	var answer struct {
		Files []File `json:"files"`
	}
	err = c.json(ctx, get("list files", target, query), &answer)
	return answer.Files, err
}

// DownloadFile opens a regular file of a Session's work folder. The caller closes it; it has SizeBytes bytes, or reading it
// ends with an error. Codes: not_found (the Session or the path), conflict (closed), invalid.
func (c *Client) DownloadFile(ctx context.Context, id, path string) (File, io.ReadCloser, error) {
	target, err := filePath(id, path)
	if err != nil {
		return File{}, nil, err
	}
	resp, err := c.do(ctx, get("download file", target, nil)) //nolint:bodyclose // the caller's
	if err != nil {
		return File{}, nil, err
	}
	f := File{Path: path, SizeBytes: resp.ContentLength}
	if mode, err := strconv.ParseUint(resp.Header.Get(modeHeader), 8, 32); err == nil {
		f.Mode = uint32(mode)
	}
	if at, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		f.ModTime = at
	}
	return f, resp.Body, nil
}

// UploadFile makes or replaces a regular file of a Session's work folder, whole or not at all, and the folders on its way.
// r is streamed and not closed; if it is an io.Seeker the upload can be repeated. Codes: not_found, conflict (closed),
// invalid (the path, or a folder in its place), exhausted (too large).
func (c *Client) UploadFile(ctx context.Context, id, path string, r io.Reader) (File, error) {
	target, err := filePath(id, path)
	if err != nil {
		return File{}, err
	}
	if r == nil {
		r = strings.NewReader("")
	}
	body := &upload{contentType: "application/octet-stream", parts: []part{streamPart(r)}}
	var f File
	err = c.json(ctx, call{operation: "upload file", method: http.MethodPut, path: target, idempotent: true, upload: body}, &f)
	return f, err
}

// RemoveFile removes a file, or a folder with all that is in it. It is repeated where the answer was lost, so not_found may
// also mean that the first attempt did it.
func (c *Client) RemoveFile(ctx context.Context, id, path string) error {
	target, err := filePath(id, path)
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, call{operation: "remove file", method: http.MethodDelete, path: target, idempotent: true}) //nolint:bodyclose // closeBody does
	if err != nil {
		return err
	}
	closeBody(resp.Body)
	return nil
}

// filePath is the path of a file of a Session. What could be taken for another path on its way is refused here.
func filePath(id, path string) (string, error) {
	var escaped strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsRune(segment, 0) || !utf8.ValidString(segment) {
			const message = "must be relative and clean, with slashes"
			return "", &Error{Code: CodeInvalid, Message: "path: " + message, Fields: []FieldError{{Field: "path", Message: message}}}
		}
		escaped.WriteString("/" + url.PathEscape(segment))
	}
	return sessionPath(id, "/files"+escaped.String())
}
