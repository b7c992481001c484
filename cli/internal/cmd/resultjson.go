package cmd

import (
	"encoding/json"
	"io"
)

// printJSON writes one value for --json. Executions and Sessions are in the form of frontends/http/apijson, as
// the server writes them.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
