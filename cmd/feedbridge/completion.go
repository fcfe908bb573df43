package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completionCommand returns the command "completion", which prints a completion script for a shell.
func completionCommand(a *app) *cobra.Command {
	shells := map[string]func(*cobra.Command) error{
		"bash":       func(root *cobra.Command) error { return root.GenBashCompletionV2(a.out, true) },
		"fish":       func(root *cobra.Command) error { return root.GenFishCompletion(a.out, true) },
		"powershell": func(root *cobra.Command) error { return root.GenPowerShellCompletionWithDesc(a.out) },
		"zsh":        func(root *cobra.Command) error { return root.GenZshCompletion(a.out) },
	}
	names := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for a shell",
		Long: `Completion prints a script with which a shell completes the commands and flags of
feedbridge, and the names of configured feeds. SHELL is ` + strings.Join(names[:len(names)-1], ", ") + ` or ` + names[len(names)-1] + `.`,
		Example: `  source <(feedbridge completion bash)
  feedbridge completion fish > ~/.config/fish/completions/feedbridge.fish`,
		Args:      exactArgs("SHELL"),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			generate := shells[args[0]]
			if generate == nil {
				return &usageError{fmt.Errorf("there is no completion for the shell %q, but for: %s", args[0], strings.Join(names, ", "))}
			}
			return generate(cmd.Root())
		},
	}
}
