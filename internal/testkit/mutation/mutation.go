// Package mutation has every run of the tests try mutated inputs of a fuzz target, the same each time.
package mutation

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const subtest = "mutated " // begins the name of the test of each mutation, with its number

// OfCorpus returns a fuzz target that also tries some mutations of each input of its corpus. They depend on that
// input alone, so that an input that is added does not change those of others. While fuzzing it returns target.
func OfCorpus[Target any](perInput int, target Target) Target {
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return target
	}
	try := reflect.ValueOf(target)
	return reflect.MakeFunc(try.Type(), func(in []reflect.Value) []reflect.Value {
		try.Call(in)
		hash := fnv.New64a()
		for _, v := range in[1:] {
			fmt.Fprintf(hash, "%q,", v)
		}
		for n := range perInput {
			in[0].Interface().(*testing.T).Run(fmt.Sprint(subtest, n), func(t *testing.T) {
				random, mutated := rand.New(rand.NewPCG(uint64(n), hash.Sum64())), slices.Clone(in)
				mutated[0] = reflect.ValueOf(t)
				for range 1 + random.IntN(4) {
					at := 1 + random.IntN(len(in)-1)
					mutated[at] = mutate(random, mutated[at])
				}
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("%q", mutated[1:])
					}
				})
				try.Call(mutated)
			})
		}
		return nil
	}).Interface().(Target)
}

// Made reports whether the input of a test is a mutation.
func Made(t testing.TB) bool {
	return strings.Contains(t.Name(), "/"+strings.ReplaceAll(subtest, " ", "_"))
}

func mutate(random *rand.Rand, v reflect.Value) reflect.Value {
	switch {
	case v.Kind() == reflect.Bool:
		return reflect.ValueOf(!v.Bool())
	case v.CanInt() || v.CanUint():
		return reflect.ValueOf(random.Uint64() >> random.IntN(64)).Convert(v.Type())
	}
	text := v.Convert(reflect.TypeFor[string]()).String()
	return reflect.ValueOf(mutateText(random, text)).Convert(v.Type())
}

var (
	token  = regexp.MustCompile(`\w+|\s+|(?s:.)`)
	pieces = append(strings.Fields(`" ' < > </ /> & &amp; &#0; &a; <![CDATA[ ]]> <!-- --> -- <? <!DOCTYPE { } [ ] , : ; = \ \u0000 \ud800
		/ // /../ ? # % %00 @ + - 0 -1 1e309 9223372036854775808 null x`), " ", "\t", "\n", "\r\n", "\x00", "\x1b[2J", "\x7f", "\xff", "é", "\u2028", "\ufeff", "\ufffe")
)

func mutateText(random *rand.Rand, text string) string {
	tokens, piece := token.FindAllString(text, -1), pieces[random.IntN(len(pieces))]
	if len(tokens) == 0 {
		return piece
	}
	at, other := random.IntN(len(tokens)), random.IntN(len(tokens))
	switch random.IntN(7) {
	case 0:
		tokens[at] = ""
	case 1:
		tokens[at] = tokens[other]
	case 2:
		tokens[at], tokens[other] = tokens[other], tokens[at]
	case 3:
		tokens[at] += strings.Join(tokens[at:min(at+1+random.IntN(9), len(tokens))], "")
	case 4:
		tokens = tokens[:at]
	case 5:
		changed := []byte(tokens[at])
		changed[random.IntN(len(changed))] ^= 1 << random.IntN(8)
		tokens[at] = string(changed)
	default:
		tokens[at] = piece + tokens[at]
	}
	return strings.Join(tokens, "")
}
