package dockerbackend

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/python-executor/python-executor/core/executor"
)

// preparedRepository holds the images that preparations made. Nobody may ask for one by name: it may be somebody else's.
const preparedRepository = "python-executor/prepared"

// imageRef is the name of an image, normalised: the same image has the same name however it was written.
type imageRef struct {
	// repository with its registry, "docker.io/library/python"; tag and digest, one of them or both.
	repository, tag, digest string
}

// parseRef reads the name of an image. Codes: invalid (it is none, field docker_image).
func parseRef(name string) (imageRef, error) {
	named, err := reference.ParseNormalizedNamed(strings.TrimSpace(name))
	if err != nil {
		return imageRef{}, executor.FieldErrorf(executor.Invalid, "docker_image", "%q is not the name of an image: %s", shorten(name, 200), err)
	}
	named = reference.TagNameOnly(named)
	r := imageRef{repository: named.Name()}
	if tagged, ok := named.(reference.Tagged); ok {
		r.tag = tagged.Tag()
	}
	if digested, ok := named.(reference.Digested); ok {
		r.digest = digested.Digest().String()
	}
	return r, nil
}

// String is the name in full. A short one could be taken for the beginning of an image's id.
func (r imageRef) String() string {
	s := r.repository
	if r.tag != "" {
		s += ":" + r.tag
	}
	if r.digest != "" {
		s += "@" + r.digest
	}
	return s
}

// familiar is the name as people write it: "python:3.12".
func (r imageRef) familiar() string {
	return strings.TrimPrefix(strings.TrimPrefix(r.String(), "docker.io/"), "library/")
}

// registry is the host that the image comes from, "docker.io".
func (r imageRef) registry() string {
	host, _, _ := strings.Cut(r.repository, "/")
	return host
}

// imagePattern is one entry of an allow-list. * stands for any characters but a slash, ** for any, ? for one. A pattern
// without a tag means every tag and digest; with one, images asked for by that tag only: what a digest brings is not told
// by the tag beside it. A pattern may name a digest.
type imagePattern struct {
	repository, tag, digest *regexp.Regexp
}

// parsePattern reads an entry of the allow-list; "*" means every image.
func parsePattern(text string) (imagePattern, error) {
	text = strings.TrimSpace(text)
	if text == "*" || text == "**" {
		text = "**/**"
	}
	if text == "" || strings.ContainsAny(text, " \t\n[]\\{}") {
		return imagePattern{}, fmt.Errorf("must be an image's name; *, ** and ? stand for characters (got %q)", text)
	}
	name, digest, hasDigest := strings.Cut(text, "@")
	repository, tag, hasTag := name, "", false
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		repository, tag, hasTag = name[:i], name[i+1:], true
	}
	if repository == "" || hasTag && tag == "" || hasDigest && digest == "" {
		return imagePattern{}, fmt.Errorf("must be an image's name; *, ** and ? stand for characters (got %q)", text)
	}
	first, rest, slash := strings.Cut(repository, "/")
	switch {
	case !slash && repository != "**":
		repository = "docker.io/library/" + repository
	case slash && !strings.ContainsAny(first, ".:*?") && first != "localhost":
		repository = "docker.io/" + repository
	case slash && (first == "index.docker.io" || first == "docker.io"):
		if !strings.Contains(rest, "/") && !strings.Contains(rest, "**") {
			rest = "library/" + rest
		}
		repository = "docker.io/" + rest
	}
	p := imagePattern{repository: glob(repository)}
	if hasTag {
		p.tag = glob(tag)
	}
	if hasDigest {
		p.digest = glob(digest)
	}
	return p, nil
}

// glob compiles a pattern.
func glob(text string) *regexp.Regexp {
	quoted := regexp.QuoteMeta(text)
	quoted = strings.ReplaceAll(quoted, `\*\*`, `.*`)
	quoted = strings.ReplaceAll(quoted, `\*`, `[^/]*`)
	quoted = strings.ReplaceAll(quoted, `\?`, `[^/]`)
	return regexp.MustCompile(`^` + quoted + `$`) // everything else is quoted
}

func (p imagePattern) matches(r imageRef) bool {
	if !p.repository.MatchString(r.repository) {
		return false
	}
	switch {
	case p.digest != nil:
		return r.digest != "" && p.digest.MatchString(r.digest)
	case p.tag != nil:
		return r.digest == "" && p.tag.MatchString(r.tag)
	}
	return true
}

// imageList is a list of patterns in the configuration.
type imageList []imagePattern

// newImageList reads the list at the path setting. Codes: invalid (an entry is no pattern).
func newImageList(entries []string, setting string) (imageList, error) {
	var list imageList
	for n, text := range entries {
		p, err := parsePattern(text)
		if err != nil {
			return nil, executor.FieldErrorf(executor.Invalid, fmt.Sprintf("%s[%d]", setting, n), "%s", err)
		}
		list = append(list, p)
	}
	return list, nil
}

// has reports whether a pattern of the list matches r.
func (l imageList) has(r imageRef) bool {
	return slices.ContainsFunc(l, func(p imagePattern) bool { return p.matches(r) })
}

// allowList says which images may be asked for.
type allowList struct {
	patterns imageList
	// always may be used: the default image.
	always imageRef
	// setting names the list to whoever is refused.
	setting string
}

// newAllowList reads a list that Config.validate has found good.
func newAllowList(patterns []string, defaultImage, setting string) (allowList, error) {
	list, err := newImageList(patterns, setting)
	if err != nil {
		return allowList{}, err
	}
	always, err := parseRef(defaultImage)
	return allowList{patterns: list, always: always, setting: setting}, err
}

// check returns the name of an image that may be used. Codes: invalid (it is no name), denied (it is not on the list); both
// of the field docker_image.
func (a allowList) check(name string) (imageRef, error) {
	r, err := parseRef(name)
	if err != nil || r == a.always {
		return r, err
	}
	if strings.HasPrefix(r.repository, "docker.io/"+preparedRepository) {
		return imageRef{}, executor.FieldErrorf(executor.Denied, "docker_image", "%s: prepared images cannot be asked for", r.familiar())
	}
	if a.patterns.has(r) {
		return r, nil
	}
	return imageRef{}, executor.FieldErrorf(executor.Denied, "docker_image", "%s is not among the images that may be used here (%s)", r.familiar(), a.setting)
}

// pythonTag is the version in the tag of an official image: 3.12 of 3.12.1-slim.
var pythonTag = regexp.MustCompile(`^(3\.(?:0|[1-9][0-9]?))((?:[.-].*)?)$`)

const officialPython = "docker.io/library/python"

// minorOf is the minor Python version that an image's name promises; empty: none.
func (r imageRef) minorOf() string {
	if m := pythonTag.FindStringSubmatch(r.tag); m != nil && r.repository == officialPython {
		return m[1]
	}
	return ""
}

// chooseImage names the image for what was asked for: the image, the default one, or the default one's sibling of another
// version. minor is the Python version asked for; empty: any. Codes: invalid (the two contradict each other).
func chooseImage(image, minor, defaultImage string) (string, error) {
	name := image
	if name == "" {
		name = defaultImage
	}
	r, err := parseRef(name)
	if err != nil {
		return "", err
	}
	has := r.minorOf()
	switch {
	case minor == "" || has == "" || has == minor:
		return name, nil
	case image != "":
		return "", executor.FieldErrorf(executor.Invalid, "docker_image", "stands for Python %s, and python_version says %s", has, minor)
	}
	// 3.12-slim → 3.11-slim; 3.12.1-slim → 3.11-slim.
	_, variant, found := strings.Cut(r.tag, "-")
	r.tag, r.digest = minor, ""
	if found {
		r.tag += "-" + variant
	}
	return r.familiar(), nil
}

// shorten cuts s to at most n bytes.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
