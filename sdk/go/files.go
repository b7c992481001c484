package pyexec

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// File is one entry of a Session's work folder.
type File struct {
	Path      string    `json:"path" doc:"Path relative to the work folder, with slashes."`
	Directory bool      `json:"directory"`
	SizeBytes int64     `json:"size_bytes"`
	Mode      uint32    `json:"mode" doc:"Permission bits, as a number."`
	ModTime   time.Time `json:"mod_time" nullable:"true"`
}

// MarshalJSON writes f as the server does.
func (f File) MarshalJSON() ([]byte, error) { return encode(f, true) }

// FilesOptions select Files. The zero value selects the entries of the work folder.
type FilesOptions struct {
	Path      string `query:"path" doc:"The folder. Default: the work folder."`
	Recursive bool   `query:"recursive" default:"false" doc:"Also everything below the folder."`
}

// WriteOptions say what an upload makes. The zero value makes a file with the mode 0644.
type WriteOptions struct {
	Mode      string `query:"mode" pattern:"^0?[0-7]{1,3}$" doc:"Permission bits of the file, in octal, such as 755. Default: 644."`
	Directory bool   `query:"directory" default:"false" doc:"Make a folder, unless there is one. The body must be empty."`
}

// FileList is the answer to the call that lists Files.
type FileList struct {
	Files []File `json:"files" doc:"Sorted by path."`
}

// modeHeader carries the permission bits of a downloaded file, in octal.
const modeHeader = "X-File-Mode"

// ListFiles lists the folder at path ("" is the work folder). With recursive it lists everything below the folder. Codes:
// not_found, conflict (closed), invalid, exhausted (more than 10,000).
func (c *Client) ListFiles(ctx context.Context, id, path string, recursive bool) ([]File, error) {
	answer, err := ask[FileList](ctx, c, get("list files", queryOf(FilesOptions{path, recursive})).at(sessionPath(id, "/files")))
	return answer.Files, err
}

// DownloadFile opens a regular file of a Session's work folder. The caller closes it. Reading returns SizeBytes bytes or an error.
// Codes: not_found (the Session or the path), conflict (closed), invalid.
func (c *Client) DownloadFile(ctx context.Context, id, path string) (File, io.ReadCloser, error) {
	resp, err := c.do(ctx, get("download file", nil).at(filePath(id, path))) //nolint:bodyclose // the caller's
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

// UploadFile makes or replaces a regular file of a Session's work folder as a whole or not at all. It makes missing folders. r is
// streamed and not closed; nil: an empty file. If r is an io.Seeker the upload can be repeated. If r is an *os.File the file keeps its
// permission bits. Codes: not_found, conflict (closed), invalid (the path, or a folder in its place), exhausted (too large).
func (c *Client) UploadFile(ctx context.Context, id, path string, r io.Reader) (File, error) {
	f := File{Path: path}
	if local, ok := r.(*os.File); ok && runtime.GOOS != "windows" {
		if info, err := local.Stat(); err == nil && info.Mode().IsRegular() {
			f.Mode = uint32(info.Mode().Perm())
		}
	}
	return c.WriteFile(ctx, id, f, r)
}

// WriteFile is UploadFile with the permission bits of f.Mode; 0 means 0644. With f.Directory it makes the folder f.Path, unless there is
// one, and r must be nil.
func (c *Client) WriteFile(ctx context.Context, id string, f File, r io.Reader) (File, error) {
	body := &upload{contentType: "application/octet-stream", parts: []part{streamPart(r)}}
	options := WriteOptions{Directory: f.Directory}
	if f.Mode != 0 {
		options.Mode = strconv.FormatUint(uint64(f.Mode), 8)
	}
	return ask[File](ctx, c, call{
		operation: "upload file", method: http.MethodPut, idempotent: true, upload: body, query: queryOf(options),
	}.at(filePath(id, f.Path)))
}

// RemoveFile removes a file, or a folder with its contents. The call is retried if its answer was lost, so not_found may mean that
// the first attempt removed the file.
func (c *Client) RemoveFile(ctx context.Context, id, path string) error {
	resp, err := c.do(ctx, remove("remove file").at(filePath(id, path))) //nolint:bodyclose // closeBody does
	if err != nil {
		return err
	}
	closeBody(resp.Body)
	return nil
}

// filePath returns the path of a file of a Session. It refuses paths that a proxy could change.
func filePath(id, path string) (string, error) {
	var escaped strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsRune(segment, 0) || !utf8.ValidString(segment) {
			return "", invalidField("path", fmt.Sprintf("must be relative to the session's folder, without empty segments, . and .. (got %q)", path))
		}
		escaped.WriteString("/" + url.PathEscape(segment))
	}
	return sessionPath(id, "/files"+escaped.String())
}
