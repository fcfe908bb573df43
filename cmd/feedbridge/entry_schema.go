package main

import (
	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/docs"
)

// schemaCommand returns the command "schema", the parent of "entry".
func schemaCommand(a *app) *cobra.Command {
	return commandGroup("schema", "Print the schema of messages", "", &cobra.Command{
		Use:   "entry",
		Short: "Print the JSON Schema of the entries of Atom and RSS feeds",
		Long: `Entry prints the JSON Schema of the bodies of messages of Atom and RSS feeds with
"body: json", which is the default.`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(docs.EntrySchema)
			return err
		},
	})
}
