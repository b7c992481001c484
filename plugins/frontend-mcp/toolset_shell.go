package mcpfrontend

import "context"

func (t *tools) addShell(context.Context) error { return nil }
