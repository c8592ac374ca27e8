// Loaded before a Node.js script that has a network: makes `fetch`, `http` and `https` use the proxy that HTTP_PROXY
// names, where Node.js does not do so itself (before 22.21 and 24). It decides nothing: without it nothing is reached.
'use strict';

const [major, minor] = process.versions.node.split('.').map(Number);
const knowsProxies = major > 22 || (major === 22 && minor >= 21);

if (process.env.HTTP_PROXY && !process.versions.bun && !knowsProxies) {
  const http = require('http');
  const https = require('https');
  const net = require('net');
  const tls = require('tls');
  const proxy = new URL(process.env.HTTP_PROXY);
  const direct = new http.Agent();

  const tunnel = (host, port, secured, callback) => {
    const name = net.isIPv6(host) ? `[${host}]` : host;
    const request = http.request({
      host: proxy.hostname,
      port: proxy.port,
      method: 'CONNECT',
      path: `${name}:${port}`,
      headers: { host: `${name}:${port}` },
      agent: direct,
    });
    request.once('connect', (response, socket) => {
      if (response.statusCode !== 200) {
        socket.destroy();
        callback(new Error(`${name}:${port} cannot be reached: ${response.statusCode} ${response.statusMessage}`));
        return;
      }
      const servername = secured.servername || (net.isIP(host) ? '' : host);
      const secure = tls.connect({ ...secured, host, socket, servername });
      secure.once('secureConnect', () => callback(null, secure));
      secure.once('error', callback);
    });
    request.once('error', callback);
    request.end();
  };

  class PlainAgent extends http.Agent {
    addRequest(request, options) {
      const name = net.isIPv6(options.host) ? `[${options.host}]` : options.host;
      request.path = `http://${name}:${options.port || 80}${request.path}`;
      super.addRequest(request, { ...options, host: proxy.hostname, port: Number(proxy.port) });
    }
  }

  class SecureAgent extends https.Agent {
    createConnection(options, callback) {
      tunnel(options.host, options.port || 443, { ...options, path: undefined }, callback);
    }
  }

  http.globalAgent = new PlainAgent();
  https.globalAgent = new SecureAgent();

  if (typeof globalThis.fetch === 'function') {
    const fetchItself = globalThis.fetch;
    const place = Symbol.for('undici.globalDispatcher.1');
    let ready = false;
    const prepare = () => {
      ready = true;
      void globalThis.Headers; // loads what fetch is made of, which leaves its dispatcher there
      const Agent = globalThis[place]?.constructor;
      if (!Agent) return;
      class ProxyAgent extends Agent {
        dispatch(options, handler) {
          const origin = new URL(options.origin);
          if (origin.protocol !== 'http:') return super.dispatch(options, handler);
          const path = `http://${origin.host}${options.path}`;
          return super.dispatch({ ...options, origin: proxy.origin, path }, handler);
        }
      }
      globalThis[place] = new ProxyAgent({
        connect: (options, callback) => {
          if (options.protocol === 'https:') {
            const secured = { servername: options.servername || undefined, ALPNProtocols: ['http/1.1'] };
            tunnel(options.hostname, options.port || 443, secured, callback);
            return;
          }
          const socket = net.connect(Number(proxy.port), proxy.hostname);
          socket.once('connect', () => callback(null, socket));
          socket.once('error', callback);
        },
      });
    };
    globalThis.fetch = function fetch(...parameters) {
      if (!ready) prepare();
      return fetchItself.apply(this, parameters);
    };
  }
}
