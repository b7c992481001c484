package httpfrontend

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// docsFiles are Swagger UI (npm swagger-ui-dist 5.31.1, Apache-2.0, docs/LICENSE), its two big files compressed once, and
// our own page around it.
//
//go:embed docs
var docsFiles embed.FS

// docsPolicy lets the page load what this server sends and nothing else. Swagger UI has its icons as data: URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is a file of /docs.
type asset struct {
	path, file, mediaType string
	gzipped               bool
	// change, unless nil, makes the text that is served of the file.
	change func([]byte) []byte
}

var docsAssets = []asset{
	{"/docs/init.js", "docs/init.js", "text/javascript; charset=utf-8", false, nil},
	{"/docs/page.css", "docs/page.css", "text/css; charset=utf-8", false, nil},
	{"/docs/swagger-ui.css", "docs/swagger-ui.css.gz", "text/css; charset=utf-8", true, nil},
	{"/docs/swagger-ui-bundle.js", "docs/swagger-ui-bundle.js.gz", "text/javascript; charset=utf-8", true, nil},
	{"/docs/LICENSE", "docs/LICENSE", "text/plain; charset=utf-8", false, nil},
	{"/docs/NOTICE", "docs/NOTICE", "text/plain; charset=utf-8", false, nil},
}

// docsPage serves the page of /docs.
func (f *frontend) docsPage(w http.ResponseWriter, _ *http.Request) error {
	page, err := docsFiles.ReadFile("docs/index.html")
	if err != nil {
		return fmt.Errorf("read the docs page: %w", err)
	}
	w.Header().Set("Content-Security-Policy", docsPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(page) // the client is gone if this fails
	return nil
}

// mount adds files to the mux.
func (f *frontend) mount(files embed.FS, assets []asset) error {
	for _, a := range assets {
		data, err := files.ReadFile(a.file) // a copy, which is not kept
		if err != nil {
			return fmt.Errorf("read %s: %w", a.file, err)
		}
		if a.change != nil {
			data = a.change(data)
		}
		sum := sha256.Sum256(data)
		etag := `"` + hex.EncodeToString(sum[:8]) + `"`
		f.mux.HandleFunc("GET "+a.path, func(w http.ResponseWriter, r *http.Request) {
			if err := a.serve(w, r, files, etag); err != nil {
				f.writeProblem(w, r, err)
			}
		})
	}
	return nil
}

func (a asset) serve(w http.ResponseWriter, r *http.Request, files embed.FS, etag string) error {
	h := w.Header()
	h.Set("Content-Security-Policy", docsPolicy)
	h.Set("Content-Type", a.mediaType)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", etag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	file, err := files.Open(a.file)
	if err != nil {
		return fmt.Errorf("open %s: %w", a.file, err)
	}
	var body io.Reader = file
	if a.change != nil {
		data, err := io.ReadAll(file)
		if err != nil {
			return fmt.Errorf("read %s: %w", a.file, err)
		}
		body = bytes.NewReader(a.change(data))
	}
	if a.gzipped {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
		} else {
			plain, err := gzip.NewReader(body)
			if err != nil {
				return fmt.Errorf("unpack %s: %w", a.file, err)
			}
			defer func() { _ = plain.Close() }()
			body = plain
		}
	}
	return send(w, body, a.file)
}

// openAPI serves the description of the API.
func (f *frontend) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(f.description) // the client is gone if this fails
	return nil
}
