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

// The URI schemes of the files that programs made.
const (
	// executionFiles is the scheme of the Artifacts of an Execution.
	executionFiles = "execution-file://"
	// contextFiles is the scheme of the files in a Session's work folder.
	contextFiles = "context-file://"
)

const (
	// maxFileLinks is the maximum number of files that a result links to. The result tells the number of the others.
	maxFileLinks = 6
	// maxPiece and maxPieceText bound what one resources/read returns of a file, in bytes of the file and in bytes of JSON.
	// Clients refuse messages above 1 MiB.
	maxPiece     = 512 << 10
	maxPieceText = 768 << 10
)

// fileTypes maps suffixes to MIME types. It replaces package mime, whose types depend on the host.
var fileTypes = map[string]string{
	".csv": "text/csv", ".gif": "image/gif", ".html": "text/html", ".jpeg": "image/jpeg", ".jpg": "image/jpeg",
	".js": "text/javascript", ".json": "application/json", ".md": "text/markdown", ".parquet": "application/vnd.apache.parquet",
	".pdf": "application/pdf", ".png": "image/png", ".py": "text/x-python", ".svg": "image/svg+xml", ".txt": "text/plain",
	".webp": "image/webp", ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xml": "application/xml",
	".zip": "application/zip",
}

// addFiles adds the resource templates of the files that programs made.
func (t *tools) addFiles() {
	t.server.AddResourceTemplate(mcp.NewResourceTemplate(executionFiles+"{execution_id}/{+path}{?offset}", "file of an execution",
		mcp.WithTemplateDescription("A file that a script or command made in its work folder. A result links to those that it has. "+
			"With offset it is read from that byte on.")), t.readFileResource)
	t.server.AddResourceTemplate(mcp.NewResourceTemplate(contextFiles+"{context_id}/{+path}{?offset}", "file of a context",
		mcp.WithTemplateDescription("A file in the work folder of a context, or of the shell's sandbox, as long as that is there. "+
			"With offset it is read from that byte on.")), t.readFileResource)
}

// openedKey is the key in a request's _meta under which missing stores an openedFile.
const openedKey = "python-executor/opened"

// openedFile is the result of opening the file that a request names.
type openedFile struct {
	file *madeFile
	err  error
}

// takeOpened removes the openedFile of a request and returns it. It returns the zero openedFile if there is none.
func takeOpened(p mcp.ReadResourceParams) openedFile {
	if p.Meta == nil {
		return openedFile{}
	}
	o, _ := p.Meta.AdditionalFields[openedKey].(openedFile)
	delete(p.Meta.AdditionalFields, openedKey)
	return o
}

// missing makes mcp-go answer that a resource does not exist. The error code depends on the revision of the protocol, and
// mcp-go uses it only for a URI that matches no template. missing therefore changes the URI of a missing resource. It leaves
// an existing file open for readFileResource or unread.
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
		request.Params.URI += " " // no URI holds a space
	}
}

// unread closes the file of a request that has not reached readFileResource.
func (t *tools) unread(_ context.Context, _ any, _ mcp.MCPMethod, message any, _ error) {
	if request, ok := message.(*mcp.ReadResourceRequest); ok {
		if f := takeOpened(request.Params).file; f != nil {
			_ = f.Close() // read only
		}
	}
}

// fileURI returns the URI of a file, in the form of the templates.
func fileURI(scheme, id, name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return scheme + id + "/" + strings.Join(parts, "/")
}

// fileLinks returns links to the first maxFileLinks of files, sorted by path, and a text that counts the others. id is the
// Execution or Session of the files. omitted is the number of further files, which are not in files. Hidden files, which
// tools make for themselves, and files of installed packages get no link but can be read.
func fileLinks(scheme, id string, files []executor.Artifact, omitted int64) []mcp.Content {
	packages := packageFolders(files)
	files = slices.DeleteFunc(slices.Clone(files), func(f executor.Artifact) bool {
		return strings.HasPrefix(f.Path, ".") || strings.Contains(f.Path, "/.") || inPackages(f.Path, packages)
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

// packageParts are the names of folders that hold installed packages or what tools generate.
var packageParts = []string{"__pycache__", "site-packages", "dist-packages", "node_modules", "venv"}

// packageFolders returns the folders below the work folder into which packages were installed. Each has a folder that
// describes one.
func packageFolders(files []executor.Artifact) []string {
	var list []string
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if parent := path.Dir(dir); isDescription(path.Base(dir)) && parent != "." && !slices.Contains(list, parent+"/") {
				list = append(list, parent+"/")
			}
		}
	}
	return list
}

func isDescription(folder string) bool {
	return strings.HasSuffix(folder, ".dist-info") || strings.HasSuffix(folder, ".egg-info")
}

// inPackages reports whether name is a file of an installed package. folders are those of packageFolders.
func inPackages(name string, folders []string) bool {
	parts := strings.Split(path.Dir(name), "/")
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(packageParts, part) || isDescription(part) }) ||
		slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(name, folder) })
}

// fileType returns the MIME type of a file. data is the beginning of the file, or nil if it was not read.
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

// isText reports whether data is UTF-8 text without NUL bytes. data may end in the middle of a character.
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
		return nil, executor.Errorf(executor.NotFound, "%s does not name a file", uri)
	}
	if f.scheme == contextFiles {
		file, content, err := t.svc.ReadFile(ctx, id, f.name)
		switch executor.CodeOf(err) {
		case executor.Invalid, executor.Conflict: // the path leads out of the folder or names a folder, or the context is closed
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

// offsetOf returns the offset in a query such as "offset=100"; 0 if there is none. Codes: invalid.
func offsetOf(query string) (int64, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, executor.Errorf(executor.Invalid, "offset: %v", err)
	}
	text := values.Get("offset")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, executor.Errorf(executor.Invalid, "offset: must be a whole number of at least 0 (got %q)", text)
	}
	return int64(n), nil //nolint:gosec // it has at most 63 bits
}

// readFileResource reads a resource of either template.
func (t *tools) readFileResource(_ context.Context, request mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
	o := takeOpened(request.Params)
	if o.err != nil {
		return nil, o.err
	}
	f := o.file
	defer f.Close() //nolint:errcheck // read only
	if f.offset > f.size {
		return nil, executor.Errorf(executor.Invalid, "offset: must be at most %d, the size of the file (got %d)", f.size, f.offset)
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
		"[bytes %d to %d of %d; read %s for the rest]", f.offset, end, f.size, next)}), nil
}

// piece returns data as the content of a resource, and the number of bytes of data in that content. whole reports whether the
// file ends with data.
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

// ran reports whether the program has run until its end or until a limit. A Failure after that is about keeping its files.
func ran(r executor.Result) bool {
	return r.Failure == nil || r.HitLimit() != nil || r.Failure.Phase == executor.PhaseCollect && (r.ExitCode != nil || r.Signal != "")
}

// artifacts returns links to the Artifacts of an Execution, and a text if some files were not kept.
func artifacts(id string, r executor.Result) []mcp.Content {
	list := fileLinks(executionFiles, id, r.Artifacts, 0)
	if f := r.Failure; f != nil && f.Phase == executor.PhaseCollect {
		list = append(list, mcp.NewTextContent("Not all files that were made were kept: "+f.Message))
	}
	return list
}

// filesOf returns links to the files that the Execution o has made: files of its Session, or Artifacts if it has none.
func filesOf(o *outcome) []mcp.Content {
	switch {
	case o.session == "":
		return artifacts(o.id, o.result)
	case o.result.SessionState == executor.SessionStateLost: // its files may disappear at any time
		return nil
	}
	return fileLinks(contextFiles, o.session, o.result.FilesChanged, o.result.FilesOmitted)
}
