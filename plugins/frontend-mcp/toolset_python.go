package mcpfrontend

import "context"

func (t *tools) addPython(context.Context) error { return nil }
