//go:build man

package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// manCommand writes a manual page for each command. It exists only in a program with the build
// tag man, which releases are not.
func manCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Hidden: true,
		Args:   exactArgs("DIRECTORY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			header := &doc.GenManHeader{Section: "1", Source: "feedbridge " + programVersion(), Manual: "feedbridge"}
			if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
				date := time.Unix(seconds, 0).UTC()
				header.Date = &date
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			escapeMarkdown(root)
			return doc.GenManTree(root, header, args[0])
		},
	}
}

// escapeMarkdown escapes the descriptions of a command and of those below it, which are plain
// text and which package doc reads as Markdown: FEEDBRIDGE_CONFIG would lose its underscore.
func escapeMarkdown(cmd *cobra.Command) {
	escape := strings.NewReplacer("_", `\_`, "*", `\*`, "<", `\<`, "[", `\[`).Replace
	cmd.Short, cmd.Long = escape(cmd.Short), escape(cmd.Long)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = escape(f.Usage) })
	for _, c := range cmd.Commands() {
		escapeMarkdown(c)
	}
}
