package detect

import (
	"path"
	"slices"
	"strings"
)

// notPrograms lists the suffixes of files that no interpreter runs, with a name for their kind.
var notPrograms = []struct {
	what     string
	suffixes []string
}{
	{"a notebook", []string{".ipynb"}},
	{"text", []string{".txt", ".md", ".rst", ".log", ".html", ".htm", ".pdf"}},
	{"data", []string{".json", ".jsonl", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".lock", ".parquet"}},
	{"an image", []string{".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp"}},
}

// foreign lists the suffixes of programs in other languages.
var foreign = map[string]string{
	".rb": "Ruby", ".pl": "Perl", ".php": "PHP", ".r": "R", ".lua": "Lua", ".jl": "Julia", ".ts": "TypeScript", ".tsx": "TypeScript", ".jsx": "JSX",
	".java": "Java", ".jar": "Java", ".class": "Java", ".go": "Go", ".rs": "Rust", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".cxx": "C++",
	".cs": "C#", ".kt": "Kotlin", ".swift": "Swift", ".bat": "a batch file of Windows", ".cmd": "a batch file of Windows", ".ps1": "PowerShell",
	".exe": "a program of Windows", ".dll": "a library of Windows",
}

// NotAProgram returns why a file of that name cannot be the entrypoint and what to do, or "" if the file may be a program. It
// only looks at the suffix. A file without a suffix may be a program.
func NotAProgram(name string) string {
	suffix := strings.ToLower(path.Ext(path.Base(name)))
	if other := foreign[suffix]; other != "" {
		return "must be a program in Python, JavaScript or shell, not " + other + " (" + suffix + "): a command runs other interpreters"
	}
	for _, kind := range notPrograms {
		if !slices.Contains(kind.suffixes, suffix) {
			continue
		}
		if suffix == ".ipynb" {
			return "must be a program, not a notebook: export it first (jupyter nbconvert --to script)"
		}
		return "must be a program, not " + kind.what + " (" + suffix + "): name the .py file that runs"
	}
	return ""
}
