//go:build !man

package main

import "github.com/spf13/cobra"

// manCommand returns nil: the program has no command for manual pages without the tag man.
func manCommand(*app) *cobra.Command { return nil }
