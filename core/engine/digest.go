package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

// A Record's SpecDigest has three parts: of the Spec, of the Workspace and of stdin. The part of an input is the digest of its content,
// digestNone where there is no input, or digestUnknown where it was streamed and not read to its end.
const (
	digestNone    = "none"
	digestUnknown = "unknown"
)

// specDigest identifies a request of owner, without the content of its input. A word and its default have one digest, and so have sync and
// async, so that a client may repeat a request in either form under one key.
func specDigest(owner string, s executor.Spec) (string, error) {
	s.IdempotencyKey, s.Durable = "", false
	if s.Language == executor.LanguagePython {
		s.Language = executor.LanguageDefault
	}
	if s.Interpreter == executor.InterpreterEnvironment {
		s.Interpreter = executor.InterpreterDefault
	}
	// encoding/json writes fields in order and maps sorted, and leaves out what is empty.
	text, err := json.Marshal(struct {
		Owner string        `json:"owner"`
		Spec  executor.Spec `json:"spec"`
	}{owner, s})
	if err != nil {
		return "", fmt.Errorf("digest of the spec: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

func joinDigest(spec, workspace, stdin string) string {
	return strings.Join([]string{spec, workspace, stdin}, " ")
}

// sourceDigest is the part of a SpecDigest about src.
func sourceDigest(src *executor.Source) string {
	if src == nil {
		return digestNone
	}
	return cmp.Or(src.Digest, digestUnknown)
}

// blobDigest is the part of a SpecDigest about a spooled input.
func blobDigest(b executor.BlobInfo) string {
	if b.Key == "" {
		return digestNone
	}
	return cmp.Or(b.Digest, digestUnknown)
}

// readDigest is sourceDigest, but reads src if its digest is not known.
func readDigest(src *executor.Source) (digest string, err error) {
	if src == nil || src.Digest != "" {
		return sourceDigest(src), nil
	}
	r, err := src.Open()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(hash, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return "", err
	}
	return digestOf([sha256.Size]byte(hash.Sum(nil))), nil
}

// digestOf writes a sum as the digest of a Source.
func digestOf(sum [sha256.Size]byte) string { return "sha256:" + hex.EncodeToString(sum[:]) }

// sameRequest reports whether two SpecDigests may be of one request: the parts that are known of both are equal.
func sameRequest(a, b string) bool {
	as, bs := strings.Split(a, " "), strings.Split(b, " ")
	if len(as) != 3 || len(bs) != 3 || as[0] != bs[0] {
		return a == b
	}
	for i := 1; i < 3; i++ {
		known := as[i] != digestUnknown && bs[i] != digestUnknown
		if known && as[i] != bs[i] || !known && (as[i] == digestNone || bs[i] == digestNone) {
			return false
		}
	}
	return true
}
