package drivers

import (
	"bytes"
	"compress/zlib"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/python-executor/python-executor/core/executor"
)

//go:embed python/program.py
var pythonProgram string

//go:embed python/loop.py
var pythonLoop string

// laterImports are the modules that the driver needs beside those of program.py.
const laterImports = "import _contextvars, io, json, types\n"

// programLater is what program.py loads when it needs it, in a form without words that a fork server could look for.
var programLater = sync.OnceValue(func() string {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write([]byte(laterImports + pythonDisplay + pythonModules + pythonMagics + pythonLoop)) // to memory
	_ = z.Close()
	return hex.EncodeToString(b.Bytes())
})

// Program returns the main file of a Python program that runs code as a program and displays what a cell displays. The program appends
// an Answer to the file place for each Display, and a last one if Displays were dropped. It first gives its own file the text code, so that
// tracebacks, inspect and multiprocessing find it there.
//
// The text of code is in the main file as it is, because a fork server looks for words and imports in it.
func Program(code, place string) string {
	literal := strings.NewReplacer(`\`, `\\`, "'''", `\'\'\'`, "\r", `\r`, "\x00", `\x00`).Replace(code)
	if strings.HasSuffix(literal, "'") {
		literal = literal[:len(literal)-1] + `\'`
	}
	return fmt.Sprintf(`(lambda source, program, trace, later, place, run: getattr(__builtins__, run)(compile(bytes.fromhex(program), "<python-executor>", run), {`+
		`"__name__": "_python_executor", "__builtins__": dict(__builtins__.__dict__), "SOURCE": source, "TRACE": trace, "LATER": later, "PLACE": place, `+
		`"MAX_DATA": %d, "MAX_DISPLAYS": %d}))('''\`+"\n%s''',\n%q, %q, %q, bytes.fromhex(%q).decode(), \"ex\" \"ec\")\n",
		executor.MaxDisplayData, executor.MaxDisplays, literal, hex.EncodeToString([]byte(pythonCode+pythonProgram)), hex.EncodeToString([]byte(pythonTrace)), programLater(),
		hex.EncodeToString([]byte(place)))
}
