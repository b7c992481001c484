package requirements

import (
	"regexp"
	"strings"

	"github.com/python-executor/python-executor/core/executor"
)

var (
	offlineForm = regexp.MustCompile(`(?i)failed to fetch|request failed|error sending request|client error \(connect\)|dns error|network was disabled|connection (refused|reset)|timed out|certificate|tls|max retries exceeded|name resolution`)
	fullForm    = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)
	oursForm    = regexp.MustCompile(`(?i)permission denied \(os error|read-only file system`)
)

// Classify turns what uv or pip said into a Failure in the phase prepare. Only a missing index, a full disk and our own
// folders are not the requirements' fault. Whose fault it is does not change what was said, which is passed on.
func Classify(said string) *executor.Failure {
	switch {
	case fullForm.MatchString(said):
		return &executor.Failure{Code: executor.Exhausted, Phase: executor.PhasePrepare, Message: "no space for the environment:\n" + said}
	case oursForm.MatchString(said):
		return &executor.Failure{Code: executor.Internal, Phase: executor.PhasePrepare, Message: said}
	case offlineForm.MatchString(said):
		return &executor.Failure{Code: executor.Unavailable, Phase: executor.PhasePrepare, Message: "the package index could not be reached:\n" + said}
	}
	return &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "requirements_txt", Message: said}
}

// Refused is the Failure of a requirements text that Normalise refused: the user's input is wrong, and the program did not
// run.
func Refused(err error) *executor.Failure {
	return &executor.Failure{Code: executor.Invalid, Phase: executor.PhasePrepare, Field: "requirements_txt", Message: "requirements_txt: " + err.Error()}
}

// WithoutCredentials cuts user:password@ out of every address in text.
func WithoutCredentials(text string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i+3])
		text = text[i+3:]
		end := strings.IndexAny(text, "/ \t\r\n\"'`)")
		if end < 0 {
			end = len(text)
		}
		if at := strings.LastIndexByte(text[:end], '@'); at >= 0 {
			text = text[at+1:]
		}
	}
}
