package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// commandGroup returns a command that only groups others.
func commandGroup(name, short, long string, commands ...*cobra.Command) *cobra.Command {
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

// usageError is an error in the command line. The exit code is 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exactArgs accepts as many arguments as names, which the command's usage has.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return unexpectedArg(args[len(names)])
		case len(args) < len(names):
			return &usageError{fmt.Errorf("%s is missing: want %s", names[len(args)], cmd.UseLine())}
		}
		return nil
	}
}

// optionalArg accepts no argument or one.
func optionalArg(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return unexpectedArg(args[1])
	}
	return nil
}

func unexpectedArg(arg string) error {
	return &usageError{fmt.Errorf("unexpected argument %q", arg)}
}
