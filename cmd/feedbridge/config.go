package main

import (
	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Tell about the configuration's form",
		Args:  exactly(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file",
		Long: `Schema prints the JSON Schema of the configuration file, for editors and for
checks in a pipeline.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			schema, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = a.out.Write(append(schema, '\n'))
			return err
		},
	})
	return cmd
}
