// A client on grpc-go: k6 runs the steps of the plan (a file, named by the variable PLAN) in each of its virtual users,
// which have a connection each, and writes the result of each step as a line of JSON: {"user", "step", "result"}.
import { b64encode } from 'k6/encoding';
import grpc from 'k6/net/grpc';

const plan = JSON.parse(open(__ENV.PLAN));
const client = new grpc.Client();
const MOST_TOLD = 5;
const PAUSE = 50; // milliseconds before a call that failed is tried again

if (plan.protos) {
  client.load([plan.root], ...plan.protos);
}

export const options = {
  scenarios: { all: { executor: 'per-vu-iterations', vus: plan.users, iterations: 1, maxDuration: '300s' } },
};

const STEPS = {
  connect(step) {
    client.connect(step.address, step.params);
    return null;
  },
  close() {
    client.close();
    return null;
  },
  invoke(step) {
    return told(client.invoke(step.method, step.message || {}, step.params));
  },
  // All `messages` at once. `take`: it ends its side only when so many replies have come; `leave`: or closes the connection.
  // `tell`: each reply is also a result of its own, as it comes.
  stream(step, at) {
    return new Promise((resolve) => {
      const stream = new grpc.Stream(client, step.method, step.params);
      const found = { messages: [], error: null };
      stream.on('data', (message) => {
        found.messages.push(message);
        if (step.tell) {
          tell(at, message);
        }
        if (found.messages.length === step.take) {
          if (step.leave) {
            client.close();
          } else {
            stream.end();
          }
        }
      });
      stream.on('error', (error) => {
        found.error = { code: error.code, message: error.message };
        resolve(found);
      });
      stream.on('end', () => resolve(found));
      step.messages.forEach((message) => stream.write(message));
      if (!step.take) {
        stream.end();
      }
    });
  },
  // `calls` of an identity, `at_once` in flight on the connection, each with bytes of its own that have to come back;
  // `again`: until all have.
  async echo(step) {
    const found = { right: 0, wrong: [], failed: {} };
    let begun = 0;
    const lane = async () => {
      while (begun < step.calls) {
        begun += 1;
        const id = `${__VU}/${begun}`;
        const data = step.data || b64encode(`${id}/`.padEnd(step.sizes[begun % step.sizes.length], id));
        while (!counted(found, id, data, await client.asyncInvoke(INFER, identity(id, data), step.params))) {
          if (!step.again) {
            break;
          }
          await new Promise((resolve) => setTimeout(resolve, PAUSE));
        }
      }
    };
    await Promise.all(Array.from({ length: step.at_once || 1 }, lane));
    return found;
  },
};

const INFER = 'inference.GRPCInferenceService/ModelInfer';

function identity(id, data) {
  const size = (data.length / 4) * 3 - (data.match(/=*$/)[0].length);
  const input = { name: 'x', datatype: 'UINT8', shape: [1, size] };
  return { model_name: 'identity', id, inputs: [input], raw_input_contents: [data] };
}

// Whether the call was answered; a wrong answer is one, too.
function counted(found, id, data, reply) {
  if (reply.status !== grpc.StatusOK) {
    const text = `${reply.status} ${reply.error.message}`;
    found.failed[text] = (found.failed[text] || 0) + 1;
    return false;
  }
  if (reply.message.id === id && reply.message.rawOutputContents[0] === data) {
    found.right += 1;
  } else if (found.wrong.length < MOST_TOLD) {
    found.wrong.push({ id, got: reply.message.id });
  }
  return true;
}

function tell(step, result) {
  console.log(JSON.stringify({ user: __VU, step, result }));
}

function told(reply) {
  const { status, message, error, headers, trailers } = reply;
  return { status, message, error: error && error.message, headers, trailers };
}

export default async function () {
  for (let at = 0; at < plan.steps.length; at += 1) {
    let result;
    try {
      result = await STEPS[plan.steps[at].op](plan.steps[at], at);
    } catch (error) {
      result = { thrown: String(error) };
    }
    tell(at, result);
  }
}
