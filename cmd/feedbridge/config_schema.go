package main

import (
	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
)

// configCommand returns the command "config", the parent of "schema".
func configCommand(a *app) *cobra.Command {
	return commandGroup("config", "Print the schema of the configuration", "", &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: `Schema prints the JSON Schema of the configuration file, for editors and for
checks in a pipeline.`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			schema, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = a.out.Write(append(schema, '\n'))
			return err
		},
	})
}
