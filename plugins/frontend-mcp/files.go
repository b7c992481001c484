package mcpfrontend

import (
	"archive/tar"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/python-executor/python-executor/core/executor"
)

// The schemes of the files that programs made: what an Execution left behind, and what lies in a Session's work folder.
const (
	executionFiles = "execution-file://"
	contextFiles   = "context-file://"
)

const (
	// maxFileLinks is the most files that one result links to; the others are counted.
	maxFileLinks = 20
	// maxPiece bounds what one resources/read returns of a file, in bytes of the file, and maxPieceText in bytes of its
	// JSON: clients refuse messages above 1 MiB.
	maxPiece     = 512 << 10
	maxPieceText = 768 << 10
)

// fileTypes are the kinds that are known by their name, whatever the machine this runs on knows.
var fileTypes = map[string]string{
	".csv": "text/csv", ".gif": "image/gif", ".html": "text/html", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".js": "text/javascript", ".json": "application/json", ".md": "text/markdown", ".parquet": "application/vnd.apache.parquet",
	".pdf": "application/pdf", ".png": "image/png", ".py": "text/x-python", ".svg": "image/svg+xml", ".txt": "text/plain",
	".webp": "image/webp", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xml": "application/xml",
	".zip": "application/zip",
}

// addFiles makes the files that programs made readable.
func (t *tools) addFiles() {
	can := t.backend.Capabilities
	if can.Artifacts || !t.backend.Healthy {
		t.server.AddResourceTemplate(mcp.NewResourceTemplate(executionFiles+"{execution_id}/{+path}{?offset}", "file of an execution",
			mcp.WithTemplateDescription("A file that a script or command made in its work folder. A result links to those that it has. "+
				"With offset it is read from that byte on.")), t.readFileResource)
	}
	if can.Sessions || !t.backend.Healthy {
		t.server.AddResourceTemplate(mcp.NewResourceTemplate(contextFiles+"{context_id}/{+path}{?offset}", "file of a context",
			mcp.WithTemplateDescription("A file in the work folder of a context, or of the shell's sandbox, as long as that is there. "+
				"With offset it is read from that byte on.")), t.readFileResource)
	}
}

// openedKey is where a request that is read carries its openedFile, beside what its sender says in _meta.
const openedKey = "python-executor/opened"

// openedFile is what opening the file that a request names came to.
type openedFile struct {
	file *madeFile
	err  error
}

// takeOpened returns what missing has opened for a request, once; neither a file nor an error: nothing.
func takeOpened(p mcp.ReadResourceParams) openedFile {
	if p.Meta == nil {
		return openedFile{}
	}
	o, _ := p.Meta.AdditionalFields[openedKey].(openedFile)
	delete(p.Meta.AdditionalFields, openedKey)
	return o
}

// missing answers for what is not there: mcp-go knows the code that the request's revision has for it, but gives it only to
// a URI that no template has. A file that is there stays open for readFileResource, else for unread.
func (t *tools) missing(ctx context.Context, _ any, request *mcp.ReadResourceRequest) {
	uri := request.Params.URI
	var err error
	switch {
	case strings.HasPrefix(uri, jobScheme):
		var id string
		if id, _, err = parseJobURI(uri); err == nil {
			_, err = t.svc.Get(ctx, id)
		}
	case strings.HasPrefix(uri, executionFiles), strings.HasPrefix(uri, contextFiles):
		var f *madeFile
		f, err = t.openFile(ctx, uri)
		if request.Params.Meta == nil {
			request.Params.Meta = &mcp.Meta{}
		}
		if request.Params.Meta.AdditionalFields == nil {
			request.Params.Meta.AdditionalFields = map[string]any{}
		}
		request.Params.Meta.AdditionalFields[openedKey] = openedFile{f, err}
	}
	switch executor.CodeOf(err) {
	case executor.NotFound, executor.Purged:
		request.Params.URI += " " // a blank is in no URI
	}
}

// unread closes the file of a request that came to no template.
func (t *tools) unread(_ context.Context, _ any, _ mcp.MCPMethod, message any, _ error) {
	if request, ok := message.(*mcp.ReadResourceRequest); ok {
		if f := takeOpened(request.Params).file; f != nil {
			_ = f.Close() // read only
		}
	}
}

// fileURI names a file as the templates do.
func fileURI(scheme, id, name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return scheme + id + "/" + strings.Join(parts, "/")
}

// fileLinks are the links to files of id, which are sorted here, and a text for those that are too many; omitted are not even
// in files. Hidden files are what tools keep for themselves: they can be read, but are not shown.
func fileLinks(scheme, id string, files []executor.Artifact, omitted int64) []mcp.Content {
	files = slices.DeleteFunc(slices.Clone(files), func(f executor.Artifact) bool {
		return strings.HasPrefix(f.Path, ".") || strings.Contains(f.Path, "/.") || strings.Contains("/"+f.Path, "/__pycache__/")
	})
	slices.SortFunc(files, func(a, b executor.Artifact) int { return strings.Compare(a.Path, b.Path) })
	var list []mcp.Content
	for _, f := range files[:min(len(files), maxFileLinks)] {
		link := mcp.NewResourceLink(fileURI(scheme, id, f.Path), f.Path, fmt.Sprintf("%d bytes", f.SizeBytes), fileType(f.Path, nil))
		size := f.SizeBytes
		link.Size = &size
		list = append(list, link)
	}
	if more := int64(len(files)-len(list)) + omitted; more > 0 && len(files) > maxFileLinks {
		list = append(list, mcp.NewTextContent(fmt.Sprintf("%d more files were made, among them %s. They are read as %s%s/<path>.",
			more, files[maxFileLinks].Path, scheme, id)))
	}
	return list
}

// fileType is the MIME type of a file. data is its beginning; nil: it is not at hand.
func fileType(name string, data []byte) string {
	kind, known := fileTypes[strings.ToLower(path.Ext(name))]
	switch {
	case known:
		return kind
	case data != nil && isText(data):
		return "text/plain"
	}
	return "application/octet-stream"
}

// isText reports whether data, which may end within a character, is text.
func isText(data []byte) bool {
	text := trimPartialRune(string(data))
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// madeFile is an open file that a program made.
type madeFile struct {
	io.Reader
	io.Closer

	scheme, id, name string
	offset, size     int64
}

// openFile opens the file that uri names. Codes: not_found, purged, conflict (the Execution runs), invalid.
func (t *tools) openFile(ctx context.Context, uri string) (*madeFile, error) {
	f := &madeFile{}
	rest, ok := strings.CutPrefix(uri, executionFiles)
	if f.scheme = executionFiles; !ok {
		f.scheme = contextFiles
		rest = strings.TrimPrefix(uri, contextFiles)
	}
	rest, query, _ := strings.Cut(rest, "?")
	var err error
	if f.offset, err = offsetOf(query); err != nil {
		return nil, err
	}
	id, name, _ := strings.Cut(rest, "/")
	f.id = id
	if f.name, err = url.PathUnescape(name); err != nil || f.name == "" || id == "" {
		return nil, executor.Errorf(executor.NotFound, "%s names no file", uri)
	}
	if f.scheme == contextFiles {
		file, content, err := t.svc.ReadFile(ctx, id, f.name)
		switch executor.CodeOf(err) {
		case executor.Invalid, executor.Conflict: // it leads out of the folder, is a folder, or is gone with its context
			return nil, executor.Errorf(executor.NotFound, "%w", err)
		}
		if err != nil {
			return nil, err
		}
		f.Reader, f.Closer, f.size = content, content, file.SizeBytes
		return f, nil
	}
	archive, err := t.svc.Artifacts(ctx, id)
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(archive); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			err = executor.Errorf(executor.NotFound, "%s has no file %q", id, f.name)
		}
		if err != nil {
			return nil, errors.Join(err, archive.Close())
		}
		if h.Typeflag == tar.TypeReg && h.Name == f.name {
			f.Reader, f.Closer, f.size = files, archive, h.Size
			return f, nil
		}
	}
}

// offsetOf reads ?offset=n. Codes: invalid.
func offsetOf(query string) (int64, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, executor.Errorf(executor.Invalid, "offset: %v", err)
	}
	text := values.Get("offset")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, executor.Errorf(executor.Invalid, "offset: must be a whole number (got %q)", text)
	}
	return n, nil
}

// readFileResource is the resource of both templates.
func (t *tools) readFileResource(_ context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	o := takeOpened(request.Params)
	if o.err != nil {
		return nil, o.err
	}
	f := o.file
	defer f.Close() //nolint:errcheck // read only
	if f.offset > f.size {
		return nil, executor.Errorf(executor.Invalid, "offset: %d is behind the end of the file, which has %d bytes", f.offset, f.size)
	}
	if _, err := io.CopyN(io.Discard, f, f.offset); err != nil {
		return nil, fmt.Errorf("read %s: %w", request.Params.URI, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, min(maxPiece, f.size-f.offset)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", request.Params.URI, err)
	}
	list, taken := piece(request.Params.URI, f.name, data, f.offset+int64(len(data)) >= f.size)
	end := f.offset + int64(taken)
	if end >= f.size {
		return list, nil
	}
	next := fileURI(f.scheme, f.id, f.name) + "?offset=" + strconv.FormatInt(end, 10)
	return append(list, mcp.TextResourceContents{URI: next, MIMEType: "text/plain", Text: fmt.Sprintf(
		"[bytes %d to %d of %d; read %s for what follows]", f.offset, end, f.size, next)}), nil
}

// piece is data as the content of a resource, and how many bytes of it that holds. whole: the file ends with it.
func piece(uri, name string, data []byte, whole bool) ([]mcp.ResourceContents, int) {
	kind := fileType(name, data)
	if !isText(data) || whole && !utf8.Valid(data) {
		return []mcp.ResourceContents{mcp.BlobResourceContents{URI: uri, MIMEType: kind, Blob: base64.StdEncoding.EncodeToString(data)}}, len(data)
	}
	text := string(data)
	for {
		text = trimPartialRune(text)
		if raw, err := json.Marshal(text); err != nil || len(raw) <= maxPieceText {
			break
		}
		text = text[:len(text)/2]
	}
	return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: kind, Text: text}}, len(text)
}

// ran reports whether a program has run to its end: what failed behind that is the keeping of its files.
func ran(r executor.Result) bool {
	return r.Failure == nil || r.Failure.Phase == executor.PhaseCollect && (r.ExitCode != nil || r.Signal != "")
}

// artifacts links to what an Execution has left behind.
func artifacts(id string, r executor.Result) []mcp.Content {
	list := fileLinks(executionFiles, id, r.Artifacts, 0)
	if f := r.Failure; f != nil && f.Phase == executor.PhaseCollect {
		list = append(list, mcp.NewTextContent("Not all files that were made were kept: "+f.Message))
	}
	return list
}

// filesOf links to what the Execution o has made: in its Session, where it ran in one, else among its Artifacts.
func filesOf(o *outcome) []mcp.Content {
	switch {
	case o.session == "":
		return artifacts(o.id, o.result)
	case o.result.SessionState == executor.SessionStateLost: // its files may go at any time
		return nil
	}
	return fileLinks(contextFiles, o.session, o.result.FilesChanged, o.result.FilesOmitted)
}
