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

	"github.com/feedbridge/feedbridge/internal/credential"
	"github.com/feedbridge/feedbridge/sink/kafka"
	"github.com/feedbridge/feedbridge/source/datareplication"
)

// enumWords returns the valid values of an enumeration, which its type declares, and nil
// for every other type.
func enumWords(t reflect.Type) []string {
	if enum, ok := reflect.Zero(t).Interface().(interface{ Values() []string }); ok {
		return enum.Values()
	}
	return nil
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	secretType   = reflect.TypeFor[credential.Secret]()
	startType    = reflect.TypeFor[datareplication.Start]()
	keyType      = reflect.TypeFor[kafka.Key]()

	wholeDays = regexp.MustCompile(`^[0-9]{1,6}d$`)
	zeroUnits = regexp.MustCompile(`(h)0m0s$|(m)0s$`)
)

// isScalarType reports whether a value of type t is written as text.
func isScalarType(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// decodeText reads the scalar type t from text. Secrets are strings, and
// strings cannot fail: no error quotes one.
func decodeText(t reflect.Type, text string) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	if t == durationType {
		d, err := decodeDuration(text)
		v.SetInt(int64(d))
		return v, err
	}
	if enumWords(t) != nil {
		v.SetString(text)
		return v, checkEnum(t, text)
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return v, u.UnmarshalText([]byte(text))
	}
	ok := true
	switch t.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(text == "true")
		ok = text == "true" || text == "false"
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		ok = err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	default:
		i, err := strconv.ParseInt(text, 10, t.Bits())
		v.SetInt(i)
		ok = err == nil
	}
	if !ok {
		return v, errors.New(expectedText(t))
	}
	return v, nil
}

func decodeDuration(text string) (time.Duration, error) {
	if wholeDays.MatchString(text) {
		days, _ := strconv.Atoi(strings.TrimSuffix(text, "d"))
		return 0, fmt.Errorf("the longest unit is the hour: write %dh", 24*days)
	}
	d, err := time.ParseDuration(text)
	if _, number := strconv.ParseFloat(text, 64); err != nil || number == nil {
		return 0, errors.New(expectedText(durationType))
	}
	return d, nil
}

// ParseFormat reads the format of a feed as the configuration writes it.
func ParseFormat(text string) (Format, error) {
	return Format(text), checkEnum(reflect.TypeFor[Format](), text)
}

func checkEnum(t reflect.Type, text string) error {
	valid := enumWords(t)
	if slices.Contains(valid, text) {
		return nil
	}
	return errors.New(expectedText(t) + didYouMean(nearestWord(text, valid)))
}

// expectedText describes the values of a scalar of type t, for an error.
func expectedText(t reflect.Type) string {
	switch {
	case t == durationType:
		return "want a duration with a unit, such as 30s"
	case t == startType:
		return "want beginning, now, a time such as 2026-01-01T00:00:00Z, id:<content-id>@<time>, or snapshot:<url>"
	case t == keyType:
		return "want a JSON pointer such as /id, or header:<name>"
	case enumWords(t) != nil:
		return "want " + joinWithOr(enumWords(t))
	}
	switch t.Kind() {
	case reflect.String:
		return `want text, such as "abc"`
	case reflect.Bool:
		return "want true or false"
	case reflect.Float64:
		return "want a number, such as 2.5"
	case reflect.Int64: // only sizes
		return "want a whole number of bytes, such as 16777216"
	default:
		return "want a whole number, such as 1000"
	}
}

// encodeText writes a scalar such that decodeText reads it back; a secret
// comes out masked.
func encodeText(v reflect.Value) string {
	if v.Type() == durationType {
		return zeroUnits.ReplaceAllString(time.Duration(v.Int()).String(), "$1$2")
	}
	m, ok := v.Interface().(encoding.TextMarshaler)
	if !ok {
		return fmt.Sprint(v)
	}
	text, err := m.MarshalText()
	if err != nil {
		panic(err) // no type of the configuration returns an error here
	}
	return string(text)
}

// joinWithOr lists words for an error: a, b or c.
func joinWithOr(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
