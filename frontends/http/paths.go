package httpfrontend

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// index answers at the root: a browser is sent to the documentation, and a program gets the addresses.
func (f *frontend) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Location", "docs") // relative, because a proxy may serve the server below a path
		w.WriteHeader(http.StatusFound)
		return
	}
	err := writeJSON(w, http.StatusOK, struct {
		Name        string `json:"name"`
		Version     string `json:"version"`
		API         string `json:"api"`
		Description string `json:"description"`
		Docs        string `json:"docs"`
		Health      string `json:"health"`
	}{programName, f.opts.Version, apiRoot, "/openapi.json", "/docs", "/healthz"})
	if err != nil {
		f.writeProblem(w, r, err)
	}
}

// noSuchPath names a path that has no operation, and one that was probably meant.
func (f *frontend) noSuchPath(r *http.Request) error {
	p := path.Clean("/" + r.URL.Path)
	candidates := []string{p, path.Join(apiRoot, p), path.Join("/api", p), strings.TrimPrefix(p, apiRoot)}
	for rest := p; len(candidates) < 16; { // below a base path
		_, after, more := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
		if !more {
			break
		}
		rest = "/" + after
		candidates = append(candidates, rest)
	}
	for _, c := range candidates {
		if c != r.URL.Path && c != "/" && f.has(c) {
			return noPath(r, "did you mean "+clip(c)+"?")
		}
	}
	for _, c := range candidates[:4] {
		if near := f.near(c); near != "" {
			return noPath(r, "did you mean "+clip(near)+"?")
		}
	}
	return noPath(r, "the API is below "+apiRoot+", and its description is at /openapi.json")
}

func noPath(r *http.Request, hint string) error {
	return executor.Errorf(executor.NotFound, "no such path: %s (got %s)", hint, clip(r.URL.Path))
}

// near returns the path of an operation that differs from p in a few characters, or has more at its end; empty: there is none. The values
// of p are kept.
func (f *frontend) near(p string) string {
	asked := strings.Split(p, "/")
	if last := len(asked) - 1; slices.Contains([]string{"execute", "run", "eval"}, asked[last]) {
		asked[last] = "exec"
	}
	best, limit := "", 4
	for _, known := range f.paths {
		meant := slices.Clone(known)
		distance, values := 0, 0
		for i, segment := range asked {
			switch {
			case i >= len(known) || len(segment) > 40:
				distance = limit
			case strings.HasPrefix(known[i], "{"):
				meant[i] = segment
				values++
			default:
				distance += executor.EditDistance(strings.ToLower(segment), known[i])
			}
		}
		if len(known) > len(asked) { // only the one segment that every such path has
			if distance > 0 || len(asked) < 4 || values > 0 || len(known) > len(asked)+1 || strings.HasPrefix(known[len(asked)], "{") {
				continue
			}
			distance = 1
		}
		if distance < limit {
			best, limit = strings.Join(meant, "/"), distance
		}
	}
	return best
}

// has reports whether a path has an operation for some method.
func (f *frontend) has(p string) bool {
	return slices.ContainsFunc([]string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodPatch}, func(m string) bool {
		return f.serves(&http.Request{Method: m, URL: &url.URL{Path: p}}, p)
	})
}
