//go:build linux

package network

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"github.com/python-executor/python-executor/core/executor/awaittest"
)

// answerTo returns the answer to m that has no records.
func answerTo(t *testing.T, m []byte) []byte {
	t.Helper()
	_, _, end, err := question(m)
	must(t, err)
	return answerWith(m, end, 0)
}

// forged are answers that the answer to a question for public.test is not, although a guess of its number or its length is right.
func forged(t *testing.T, asked []byte) map[string][]byte {
	t.Helper()
	otherNumber := answerTo(t, asked)
	otherNumber[1]++
	twoQuestions := answerTo(t, asked)
	twoQuestions[5]++
	return map[string][]byte{
		"another name of the same length": answerTo(t, query("secret.test", dnsA)),
		"a shorter name":                  answerTo(t, query("c.test", dnsA)),
		"another type":                    answerTo(t, query("public.test", dnsAAAA)),
		"another number":                  otherNumber,
		"two questions":                   twoQuestions,
		"no question":                     answerWith(asked, 0, 0),
		"the question itself":             asked,
		"half a header":                   asked[:dnsHeader/2],
		"half a question":                 answerTo(t, asked)[:dnsHeader+4],
	}
}

func TestAnAnswerIsForItsQuestionOnly(t *testing.T) {
	t.Parallel()
	asked := query("public.test", dnsA)
	for name, answer := range map[string][]byte{"its own": answerTo(t, asked), "in capitals": answerTo(t, query("PUBLIC.test", dnsA))} {
		if err := checkAnswer(asked, answer); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, answer := range forged(t, asked) {
		if checkAnswer(asked, answer) == nil {
			t.Errorf("%s is believed", name)
		}
	}
}

// Anybody can send to the port from which a question over UDP went. Such an answer is left aside, and the server's is waited for.
func TestAForgedAnswerIsNotTaken(t *testing.T) {
	t.Parallel()
	asked := query("public.test", dnsA)
	right, wrong := answerTo(t, asked), forged(t, asked)
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer server.Close()
	go func() {
		buffer := make([]byte, maxMessage)
		for {
			_, from, err := server.ReadFromUDP(buffer)
			if err != nil {
				return // the test has ended
			}
			for _, answer := range wrong {
				_, _ = server.WriteToUDP(answer, from)
			}
			_, _ = server.WriteToUDP(right, from)
		}
	}()
	awaittest.UntilNil(t, "an answer over UDP", func() error { // a busy machine may need longer than serverTime
		got, err := exchange(t.Context(), "udp", server.LocalAddr().String(), asked)
		if err == nil && !bytes.Equal(got, right) {
			t.Fatalf("over UDP: got %x", got)
		}
		return err
	})
}

// Over TCP an answer that is not the server's is an error at once.
func TestAForgedAnswerOverTCPIsAnError(t *testing.T) {
	t.Parallel()
	asked := query("public.test", dnsA)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	answers := make(chan []byte, 1)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			_, _ = readFramed(c)
			_ = writeFramed(c, <-answers)
			_ = c.Close()
		}
	}()
	for name, answer := range forged(t, asked) {
		awaittest.Until(t, name+" was refused", func() bool {
			answers <- answer
			got, err := exchange(t.Context(), "tcp", listener.Addr().String(), asked)
			if err == nil {
				t.Fatalf("%s: got %x", name, got)
			}
			return errors.Is(err, errMessage)
		})
	}
}
