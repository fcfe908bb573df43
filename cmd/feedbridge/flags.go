package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/feedbridge/feedbridge/config"
	"github.com/feedbridge/feedbridge/source"
)

// addStartFlag adds the flag --from, a start position. It leaves nil if the flag is not given.
func addStartFlag(cmd *cobra.Command, start **source.Start, usage string) {
	cmd.Flags().Func("from", usage, func(text string) error {
		*start = new(source.Start)
		return (*start).UnmarshalText([]byte(text))
	})
}

// addFormatFlag adds the flag --format, the format of a feed.
func addFormatFlag(cmd *cobra.Command, format *config.Format) {
	cmd.Flags().Func("format", "the `FORMAT`: datareplication, atom, rss, jsonfeed or\nhttp-feeds; default auto, or the format in the configuration", func(text string) (err error) {
		*format, err = config.ParseFormat(text)
		return err
	})
}

// addCountFlag adds a flag whose value is a number of entities.
func addCountFlag(cmd *cobra.Command, count *int, name, shorthand, usage string) {
	cmd.Flags().FuncP(name, shorthand, usage, func(text string) (err error) {
		if *count, err = strconv.Atoi(text); err != nil || *count < 1 {
			return errors.New("want a number of entities, 1 or more")
		}
		return nil
	})
}
