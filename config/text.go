package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/feedbridge/feedbridge/serve"
	"github.com/feedbridge/feedbridge/sink"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source/datareplication"
	"github.com/feedbridge/feedbridge/source/syndication"
	"github.com/feedbridge/feedbridge/source/syndication/feedxml"
)

// enums has the types that take only some words.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[Level]():         {"debug", "info", "warn", "error"},
	reflect.TypeFor[LogFormat]():     {"auto", "text", "json"},
	reflect.TypeFor[Format]():        {"auto", datareplication.Kind, string(feedxml.Atom), string(feedxml.RSS)},
	reflect.TypeFor[sink.Oversize](): {string(sink.Stop), string(sink.Skip)},
	reflect.TypeFor[kafka.Mechanism](): {
		string(kafka.Plain), string(kafka.ScramSHA256), string(kafka.ScramSHA512), string(kafka.OAuthBearer), string(kafka.MSKIAM),
	},
	reflect.TypeFor[kafka.Compression](): {
		string(kafka.None), string(kafka.Gzip), string(kafka.Snappy), string(kafka.LZ4), string(kafka.Zstd),
	},
	reflect.TypeFor[serve.Format]():     {string(serve.DataReplication), string(serve.Atom), string(serve.RSS)},
	reflect.TypeFor[kafka.Delete]():     {string(kafka.DeleteMessage), string(kafka.DeleteTombstone)},
	reflect.TypeFor[kafka.MissingKey](): {string(kafka.KeyStop), string(kafka.KeyNull)},
	reflect.TypeFor[syndication.DialectName](): {
		"auto", "complete", "archived", "paged", "window", "fh-00", "fh-01", "fh-02", "fh-03", "fh-04", "fh-05", "pace", "atomhopper", "ict4h", "kurrent",
	},
	reflect.TypeFor[syndication.OrderName]():       {"auto", "newest_first", "oldest_first", "updated"},
	reflect.TypeFor[syndication.Mode]():            {"poll", "tail"},
	reflect.TypeFor[syndication.TombstonePolicy](): {"ignore", "publish"},
	reflect.TypeFor[syndication.HintPolicy]():      {"heed", "ignore"},
	reflect.TypeFor[feedxml.Identity]():            {"auto", "guid", "link", "content"},
	reflect.TypeFor[syndication.Leniency]():        {"auto", "true", "false"},
	reflect.TypeFor[datareplication.Gap](): {
		string(datareplication.GapHalt), string(datareplication.GapResume), string(datareplication.GapRestart),
	},
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	startType    = reflect.TypeFor[datareplication.Start]()
	keyType      = reflect.TypeFor[kafka.Key]()

	wholeDays = regexp.MustCompile(`^[0-9]{1,6}d$`)
)

// decodeText reads the scalar type t from text. Secrets are strings, and
// strings cannot fail: no error quotes one.
func decodeText(t reflect.Type, text string) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	switch {
	case t == durationType:
		d, err := decodeDuration(text)
		v.SetInt(int64(d))
		return v, err
	case enums[t] != nil:
		v.SetString(text)
		return v, checkEnum(t, text)
	case v.Addr().Type().Implements(textUnmarshaler):
		return v, v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	}
	var err error
	switch t.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(text == "true")
		if text != "true" && text != "false" {
			err = errors.New(want(t))
		}
	case reflect.Float64:
		f, parseErr := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		if parseErr != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			err = errors.New(want(t))
		}
	default:
		i, parseErr := strconv.ParseInt(text, 10, t.Bits())
		v.SetInt(i)
		if parseErr != nil {
			err = errors.New(want(t))
		}
	}
	return v, err
}

func decodeDuration(text string) (time.Duration, error) {
	if wholeDays.MatchString(text) {
		days, _ := strconv.Atoi(strings.TrimSuffix(text, "d"))
		return 0, fmt.Errorf("the longest unit is the hour: write %dh", 24*days)
	}
	d, err := time.ParseDuration(text)
	if _, number := strconv.ParseFloat(text, 64); err != nil || number == nil {
		return 0, errors.New(want(durationType))
	}
	return d, nil
}

// ParseFormat reads the format of a feed as the configuration writes it.
func ParseFormat(text string) (Format, error) {
	return Format(text), checkEnum(reflect.TypeFor[Format](), text)
}

func checkEnum(t reflect.Type, text string) error {
	switch words := enums[t]; {
	case slices.Contains(words, text):
		return nil
	default:
		return errors.New(want(t) + didYouMean(nearest(text, words)))
	}
}

// want says what a scalar of type t looks like.
func want(t reflect.Type) string {
	switch {
	case t == durationType:
		return "want a duration with a unit, such as 30s"
	case t == startType:
		return "want beginning, now, a time such as 2026-01-01T00:00:00Z, id:<content-id>@<time>, or snapshot:<url>"
	case t == keyType:
		return "want a JSON pointer such as /id, or header:<name>"
	case enums[t] != nil:
		return "want " + orList(enums[t])
	}
	switch t.Kind() {
	case reflect.String:
		return `want text, such as "abc"`
	case reflect.Bool:
		return "want true or false"
	case reflect.Float64:
		return "want a number, such as 2.5"
	case reflect.Int64: // sizes, and nothing else
		return "want a whole number of bytes, such as 16777216"
	default:
		return "want a whole number, such as 1000"
	}
}

// encodeText writes a scalar such that decodeText reads it back; a secret
// comes out masked.
func encodeText(v reflect.Value) string {
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		// None of the types of the configuration fails here.
		text, err := m.MarshalText()
		if err != nil {
			panic(err)
		}
		return string(text)
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	if v.Type() != durationType {
		return strconv.FormatInt(v.Int(), 10)
	}
	text := time.Duration(v.Int()).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func orList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
