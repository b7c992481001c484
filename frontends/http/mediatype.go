package httpfrontend

import (
	"mime"
	"net/http"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// mediaTypeOf returns the type of a request's body, and whether it is JSON in UTF-8.
func mediaTypeOf(r *http.Request) (mediaType string, params map[string]string, isJSON bool) {
	mediaType, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	return mediaType, params, err == nil && mediaType == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8"))
}

// wrongType returns the error of a body with another type than the allowed ones.
func wrongType(r *http.Request, allowed string) error {
	got := r.Header.Get("Content-Type")
	mediaType, _, _ := mediaTypeOf(r)
	usual := ""
	switch {
	case got == "":
		return refuse(http.StatusUnsupportedMediaType, executor.Invalid, "the Content-Type must be %s (none was given)", allowed)
	case mediaType == "application/x-www-form-urlencoded":
		usual = ": with curl, -H 'Content-Type: application/json'"
	case !strings.Contains(allowed, "multipart"):
	case strings.HasPrefix(mediaType, "text/") && !strings.HasSuffix(mediaType, "json"), strings.HasSuffix(mediaType, "python"), strings.HasSuffix(mediaType, "javascript"):
		usual = `: the text of a program is the field code, {"code": "print(1)"}`
	case strings.Contains(mediaType, "tar"), compressedTypes[mediaType] != "", mediaType == "application/octet-stream":
		usual = ": a tar is the part tar of a multipart body, and is not compressed"
	}
	return refuse(http.StatusUnsupportedMediaType, executor.Invalid, "the Content-Type must be %s%s (got %.80q)", allowed, usual, got)
}
