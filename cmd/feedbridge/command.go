package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) command() *cobra.Command {
	// Commands are listed as they are added: what one needs first comes first.
	cobra.EnableCommandSorting = false
	root := group("feedbridge", "Copy HTTP feeds to message topics, each entity once and in order",
		`feedbridge polls HTTP feeds and puts what is new in them onto NATS JetStream or
Kafka as ordered messages: for each feed its topic holds exactly the feed's
entities, in order, each once, after any crash and on any number of copies.

Start with 'feedbridge demo', which needs nothing, or 'feedbridge run URL'.`,
		a.runCommand(), a.demoCommand(), a.tailCommand(), a.inspectCommand(), a.verifyCommand(), a.checkCommand(),
		a.checkpointCommand(), a.configCommand(), a.completionCommand(), a.versionCommand())
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = versionLine()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(helpCommand())
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	return root
}

// group returns a command that is nothing but a name for others.
func group(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long,
		SuggestionsMinimumDistance: 2,
		Args:                       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

func unknownCommand(group *cobra.Command, name string) error {
	text := fmt.Sprintf("there is no command %q", name)
	if parent := group.CommandPath(); group.HasParent() {
		text = fmt.Sprintf("there is no command %q of %s", name, parent)
	}
	if near := group.SuggestionsFor(name); len(near) > 0 {
		text += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return &usageError{errors.New(text)}
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "help [COMMAND]",
		Short:  "Say more about a command",
		Hidden: true, // --help is what is advertised
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return &usageError{err}
			}
			if len(rest) > 0 {
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// usage writes what follows the first words of --help.
func usage(cmd *cobra.Command) error {
	p := &printer{w: cmd.OutOrStderr()}
	if cmd.HasAvailableSubCommands() {
		p.line("Usage:\n  %s COMMAND\n\nCommands:", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				p.line("  %-*s  %s", c.NamePadding(), c.Name(), c.Short)
			}
		}
	} else {
		p.line("Usage:\n  %s", cmd.UseLine())
	}
	if cmd.HasExample() {
		p.line("\nExamples:\n%s", ownText(cmd.Example))
	}
	p.line("\nFlags:\n%s", ownText(strings.TrimRight(cmd.LocalFlags().FlagUsages(), "\n")))
	if cmd.HasAvailableSubCommands() {
		p.line("\n'%s COMMAND --help' says more about a command.", cmd.CommandPath())
	}
	return p.err
}

// usageError says that the command line is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exactly wants arguments, which have these names in the command's usage.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return unexpected(args[len(names)])
		case len(args) < len(names):
			return &usageError{fmt.Errorf("%s is missing: want %s", names[len(args)], cmd.UseLine())}
		}
		return nil
	}
}

// atMostOne wants an argument or none.
func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return unexpected(args[1])
	}
	return nil
}

func unexpected(arg string) error {
	return &usageError{fmt.Errorf("the argument %q is one too many", arg)}
}
