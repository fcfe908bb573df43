// Package setting reads and writes the values of configuration keys as text, and fills in the
// defaults that structs declare. The struct of the package that uses a key has these tags: yaml
// names the key, default is its default as text, and min and max bound it.
package setting

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Words returns the valid values of an enumeration, which its type declares, and nil
// for every other type.
func Words(t reflect.Type) []string {
	if enum, ok := reflect.Zero(t).Interface().(interface{ Values() []string }); ok {
		return enum.Values()
	}
	return nil
}

var (
	durationType = reflect.TypeFor[time.Duration]()

	wholeDays = regexp.MustCompile(`^[0-9]{1,6}d$`)
	zeroUnits = regexp.MustCompile(`(h)0m0s$|(m)0s$`)
)

// IsScalar reports whether a value of type t is written as text.
func IsScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Decode reads the scalar type t from text. Secrets are strings, and
// strings cannot fail: no error quotes one.
func Decode(t reflect.Type, text string) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	if t == durationType {
		d, err := decodeDuration(text)
		v.SetInt(int64(d))
		return v, err
	}
	if Words(t) != nil {
		v.SetString(text)
		if !slices.Contains(Words(t), text) {
			return v, errors.New(Expected(t))
		}
		return v, nil
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
		var i int64
		i, ok = wholeNumber(text)
		ok = ok && !v.OverflowInt(i)
		v.SetInt(i)
	}
	if !ok {
		return v, errors.New(Expected(t))
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
		return 0, errors.New(Expected(durationType))
	}
	return d, nil
}

// wholeNumber reads an integer, or a float that is one: Helm renders 134217728 as 1.34217728e+08.
func wholeNumber(text string) (int64, bool) {
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return i, true
	}
	r, ok := new(big.Rat).SetString(text) // exact, unlike a float64, but it also reads 0x10, 1_000 and 4/2
	if !ok || strings.Trim(text, "0123456789.eE+-") != "" || !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	return r.Num().Int64(), true
}

// Expected describes the values of a scalar of type t, for an error.
func Expected(t reflect.Type) string {
	switch {
	case t == durationType:
		return "want a duration with a unit, such as 30s"
	case t.Implements(reflect.TypeFor[interface{ Expected() string }]()):
		return reflect.Zero(t).Interface().(interface{ Expected() string }).Expected()
	case Words(t) != nil:
		return "want " + OrList(Words(t))
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

// Encode writes a scalar such that Decode reads it back; a secret
// comes out masked.
func Encode(v reflect.Value) string {
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

// OrList lists words for an error: a, b or c.
func OrList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Defaults returns a T with every default that its tags declare.
func Defaults[T any]() (v T) {
	Complete(&v)
	return v
}

// Complete sets each field of a struct that is zero to its default, also in structs in it.
func Complete(structure any) { complete(reflect.ValueOf(structure).Elem()) }

func complete(v reflect.Value) {
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case IsScalar(field.Type()):
			if field.IsZero() && v.Type().Field(i).IsExported() {
				field.Set(Default(field.Type(), v.Type().Field(i).Tag))
			}
		case field.Kind() == reflect.Struct:
			complete(field)
		}
	}
}

// Default returns the default that the tag of a field of type t declares, or zero.
func Default(t reflect.Type, tag reflect.StructTag) reflect.Value {
	if text := tag.Get("default"); text != "" {
		return mustDecode(t, text)
	}
	return reflect.Zero(t)
}

// mustDecode reads a tag.
func mustDecode(t reflect.Type, text string) reflect.Value {
	v, err := Decode(t, text)
	if err != nil {
		panic(fmt.Sprintf("setting: a tag has %q: %v", text, err))
	}
	return v
}

// Bounds are the least and the greatest value of a whole number or a duration. They are invalid
// if there are none.
type Bounds struct{ Least, Most reflect.Value }

// BoundsOf returns the bounds that the tags min and max of a field of type t declare.
func BoundsOf(t reflect.Type, tag reflect.StructTag) (b Bounds) {
	if text := tag.Get("min"); text != "" {
		b.Least = mustDecode(t, text)
	}
	if text := tag.Get("max"); text != "" {
		b.Most = mustDecode(t, text)
	}
	return b
}

// Range reports whether there are both bounds.
func (b Bounds) Range() bool { return b.Least.IsValid() && b.Most.IsValid() }

// Check returns an error unless v is within the bounds.
func (b Bounds) Check(v reflect.Value) error {
	switch {
	case (!b.Least.IsValid() || v.Int() >= b.Least.Int()) && (!b.Most.IsValid() || v.Int() <= b.Most.Int()):
		return nil
	case b.Range():
		return fmt.Errorf("must be from %s to %s", Encode(b.Least), Encode(b.Most))
	case b.Least.Int() == 0:
		return errors.New("must not be negative")
	}
	return fmt.Errorf("must be %s or more", Encode(b.Least))
}
